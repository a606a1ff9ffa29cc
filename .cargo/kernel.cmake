# Compiles Bitcoin Core's kernel without debug information, whatever its build script asks for.
set(APPEND_CXXFLAGS -g0 CACHE STRING "flags after all others")
