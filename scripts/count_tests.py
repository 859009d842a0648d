#!/usr/bin/env python3
"""Counts test cases: count_tests.py CTEST-JUNIT-XML GTEST-XML-DIRECTORY.

A ctest entry that is a GoogleTest binary counts by its cases; any other counts as one. The last line is
"N passed, N failed[, N skipped]". Before it comes every failure's name with the end of what it printed.
"""

import pathlib
import sys
import xml.etree.ElementTree as xml


SHOWN_LINES = 15


def gtest_cases(path):
    """(passed, (name, message) of each failed, skipped) of one GoogleTest report."""
    passed, failed, skipped = 0, [], 0
    for case in xml.parse(path).iter("testcase"):
        if (failure := case.find("failure")) is not None:
            failed.append((f'{case.get("classname")}.{case.get("name")}', failure.text or ""))
        elif case.get("status") == "notrun" or case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main(entries, reports):
    passed, failed, skipped = 0, [], 0
    for entry in xml.parse(entries).iter("testcase"):
        name, outcome = entry.get("name"), entry.get("status")
        report = pathlib.Path(reports) / f"{name}.xml"
        cases = (0, [], 0)
        try:
            if report.exists():
                cases = gtest_cases(report)
        except xml.ParseError:
            pass  # the binary died while writing; the entry has failed
        if outcome in ("notrun", "disabled"):
            skipped += 1
        elif outcome == "fail" and not cases[1]:
            # It crashed, leaked, timed out, or is not a GoogleTest binary.
            failed.append((name, entry.findtext("system-out") or ""))
        elif not any((cases[0], cases[1], cases[2])):
            passed += 1
        passed += cases[0]
        failed += [(f"{name}: {case}", message) for case, message in cases[1]]
        skipped += cases[2]

    for name, message in failed:
        print(f"FAILED {name}")
        for line in message.strip().splitlines()[-SHOWN_LINES:]:
            print(f"    {line[:300]}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
