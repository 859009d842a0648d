// Stands in for libFuzzer: gives every file of the directories and files named to the fuzz target.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" [[gnu::weak]] int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace {

std::vector<std::filesystem::path> files_of(const std::filesystem::path& where) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(where)) return {where};
  for (const auto& entry : std::filesystem::recursive_directory_iterator{where})
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

bool replay(const std::filesystem::path& file) {
  std::ifstream stream{file, std::ios::binary};
  if (!stream) return false;
  const std::vector<char> bytes{std::istreambuf_iterator<char>{stream}, {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char* argv[]) {
  if (LLVMFuzzerInitialize) LLVMFuzzerInitialize(&argc, &argv);
  std::size_t replayed = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& file : files_of(argv[i])) {
      std::fprintf(stderr, "%s\n", file.c_str());  // the last one printed is the one that failed
      if (!replay(file)) return std::fprintf(stderr, "cannot read %s\n", file.c_str()), 1;
      ++replayed;
    }
  }
  if (replayed == 0) return std::fprintf(stderr, "no corpus: nothing was replayed\n"), 1;
  std::printf("%zu inputs replayed\n", replayed);
  return 0;
}
