// Carries the precompiled header; see WeftModule.cmake.
