# Lets cmake compile for 64-bit ARM on another machine: with Debian's cross compiler, and with the machine's own Boost, of which only headers are
# needed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
file(GLOB boost /usr/lib/*/cmake/Boost-*)
list(GET boost 0 Boost_DIR)
include(${CMAKE_CURRENT_LIST_DIR}/../.cargo/kernel.cmake)
