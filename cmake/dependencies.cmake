# What Lockstep stands on. Other prefixes: CMAKE_PREFIX_PATH, for libraries and pkg-config files
# alike. tools/install_dependencies.sh knows the package names.
add_library(lockstep_dependencies INTERFACE)
set(install_hint "run tools/install_dependencies.sh, or set CMAKE_PREFIX_PATH")

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
# dlopen, before glibc 2.34: NVIDIA's libraries are opened at run time.
target_link_libraries(lockstep_dependencies INTERFACE Threads::Threads m ${CMAKE_DL_LIBS})

# oneDNN's own CMake package demands OpenCL, which the CPU engine does not use.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY NAMES dnnl libdnnl.so.3 libdnnl.so.2)
if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
  message(FATAL_ERROR "oneDNN (libdnnl) was not found: ${install_hint}")
endif()
target_include_directories(lockstep_dependencies SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(lockstep_dependencies INTERFACE ${DNNL_LIBRARY})
file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_version
  REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" dnnl_version "${dnnl_version}")
string(REPLACE ";" "." dnnl_version "${dnnl_version}")
set(private_libraries ${DNNL_LIBRARY}) # what users of the static library link too
message(STATUS "oneDNN: found (${dnnl_version})")

foreach(module jansson yaml-0.1 libpcre2-8 libutf8proc zlib libzstd)
  string(MAKE_C_IDENTIFIER LS_${module} variable)
  pkg_check_modules(${variable} QUIET IMPORTED_TARGET ${module})
  if(NOT ${variable}_FOUND)
    message(FATAL_ERROR "${module} was not found by pkg-config: ${install_hint}")
  endif()
  message(STATUS "${module}: found (${${variable}_VERSION})")
  target_link_libraries(lockstep_dependencies INTERFACE PkgConfig::${variable})
  list(APPEND private_libraries ${${variable}_LINK_LIBRARIES})
endforeach()

# clang without libomp compiles the kernels for one thread; gcc always brings libgomp.
find_package(OpenMP COMPONENTS C QUIET)
if(OpenMP_C_FOUND)
  message(STATUS "OpenMP: found (${OpenMP_C_VERSION})")
  target_link_libraries(lockstep_dependencies INTERFACE OpenMP::OpenMP_C)
  list(APPEND private_libraries ${OpenMP_C_FLAGS})
else()
  message(STATUS "OpenMP: not found (kernels use one thread per device)")
  target_compile_options(lockstep_dependencies INTERFACE -Wno-unknown-pragmas)
endif()

option(LS_MPI "Use MPI where it is found" ON)
if(LS_MPI)
  find_package(MPI COMPONENTS C QUIET)
endif()
if(MPI_C_FOUND)
  message(STATUS "MPI: found (MPI-${MPI_C_VERSION})")
  target_compile_definitions(lockstep_dependencies INTERFACE LS_HAVE_MPI)
  target_link_libraries(lockstep_dependencies INTERFACE MPI::MPI_C)
  list(APPEND private_libraries ${MPI_C_LIBRARIES})
else()
  message(STATUS "MPI: not found (ranks are threads of one process; libopenmpi-dev adds processes)")
endif()

pkg_check_modules(LS_URING QUIET IMPORTED_TARGET liburing)
if(LS_URING_FOUND)
  message(STATUS "liburing: found (${LS_URING_VERSION})")
  target_compile_definitions(lockstep_dependencies INTERFACE LS_HAVE_URING)
  target_link_libraries(lockstep_dependencies INTERFACE PkgConfig::LS_URING)
  list(APPEND private_libraries ${LS_URING_LINK_LIBRARIES})
else()
  message(STATUS "liburing: not found (threads read and write what is offloaded to a file)")
endif()

list(JOIN private_libraries " " pkg_config_private)

pkg_check_modules(LS_CMOCKA QUIET IMPORTED_TARGET cmocka)
if(LS_CMOCKA_FOUND)
  message(STATUS "cmocka: found (${LS_CMOCKA_VERSION})")
else()
  message(STATUS "cmocka: not found (no test programs are built; libcmocka-dev adds them)")
endif()
