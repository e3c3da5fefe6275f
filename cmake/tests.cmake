# Every *_test.c beside the code and every tests/*.c is a cmocka program; every tests/*.sh is run
# with the lockstep command as its first argument. All run in the source folder; 77 means skipped.
enable_testing()
add_custom_target(threaded_tests) # what `make check-tsan` builds

function(lockstep_test name)
  set(label quick)
  set(timeout ${LS_TEST_TIMEOUT})
  foreach(pattern ${LS_SLOW_TESTS})
    if(name MATCHES "${pattern}")
      set(label slow)
      set(timeout ${LS_SLOW_TEST_TIMEOUT})
    endif()
  endforeach()
  foreach(pattern ${LS_RELEASE_TESTS} ${LS_LONG_TESTS})
    if(name MATCHES "${pattern}")
      list(APPEND label release)
    endif()
  endforeach()
  foreach(pattern ${LS_LONG_TESTS})
    if(LS_SANITIZE AND name MATCHES "${pattern}")
      set(label long)
    endif()
  endforeach()
  foreach(pattern ${LS_FULL_TESTS})
    if(name MATCHES "${pattern}")
      set(label full)
    endif()
  endforeach()
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  foreach(pattern ${LS_LONGEST_TESTS})
    if(name MATCHES "${pattern}")
      set_tests_properties(${name} PROPERTIES COST 100)
    endif()
  endforeach()
  foreach(pattern ${LS_THREADED_TESTS})
    if(name MATCHES "${pattern}")
      list(APPEND label threads)
      if(TARGET ${name})
        add_dependencies(threaded_tests ${name})
      endif()
    endif()
  endforeach()
  set(environment
    "CC=${CMAKE_C_COMPILER}"
    # As the command itself does where it is not said, by starting once more: with sanitizers 0.06 s.
    "GOMP_SPINCOUNT=4000"
    "LS_BUILD_DIR=${CMAKE_BINARY_DIR}"
    "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/support/leaks.txt:print_suppressions=0"
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1"
    "UBSAN_OPTIONS=print_stacktrace=1")
  if(LS_SANITIZE MATCHES "thread")
    # The thread sanitizer does not see how OpenMP's threads wait for each other.
    list(APPEND environment OMP_THREAD_LIMIT=1)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${label}" TIMEOUT ${timeout}
    SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
endfunction()

if(support_sources AND LS_CMOCKA_FOUND)
  add_library(lockstep_test_support STATIC ${support_sources})
  target_include_directories(lockstep_test_support PUBLIC tests)
  target_link_libraries(lockstep_test_support PUBLIC lockstep_options PkgConfig::LS_CMOCKA)
endif()

# Not of the library's objects and without sanitizers: it comes between a program and the system.
add_library(faults_preload MODULE tests/support/faults_preload.c)
target_compile_definitions(faults_preload PRIVATE _GNU_SOURCE)
if(LS_SANITIZE)
  target_compile_definitions(faults_preload PRIVATE LS_SANITIZED)
endif()
target_compile_options(faults_preload PRIVATE -Wall -Wextra $<$<BOOL:${LS_WERROR}>:-Werror>)
target_link_libraries(faults_preload PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(faults_preload PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

include(cmake/stand_ins.cmake)

# Linked with the shared library, 200 programs take 20 MB; with the static one 2.5 GB and minutes.
# Tests of the command's files are static as the command is.
function(lockstep_library_of source library)
  set(${library} lockstep_shared PARENT_SCOPE)
  if(source MATCHES "^src/cli/" AND TARGET lockstep_command)
    set(${library} lockstep_command PARENT_SCOPE)
  endif()
endfunction()
function(lockstep_test_program name source)
  add_executable(${name} ${source})
  lockstep_library_of(${source} library)
  target_link_libraries(${name} PRIVATE $<TARGET_NAME_IF_EXISTS:lockstep_test_support> ${library}
    lockstep_options PkgConfig::LS_CMOCKA)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(${name} stand_ins)
  lockstep_test(${name} ${CMAKE_BINARY_DIR}/tests/${name})
endfunction()

# What bench_command_test.sh has rates from.
add_executable(quick_rates tests/support/quick_rates.c)
target_link_libraries(quick_rates PRIVATE lockstep_shared lockstep_options)
set_target_properties(quick_rates PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

# CUDA kernels as C++ for the CPU (tests/cuda/shim_run.h): what the tests named cuda_*_test run.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  file(GLOB shim_sources RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS tests/cuda/*.cc)
  add_library(lockstep_cuda_shim OBJECT ${shim_sources})
  set_target_properties(lockstep_cuda_shim PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON)
  target_include_directories(lockstep_cuda_shim PRIVATE tests src include)
  # Kernels take eight numbers of 16 bits as one word of 128.
  target_compile_options(lockstep_cuda_shim PRIVATE -O2 -g -fno-strict-aliasing
    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -Wall -Wextra -Wno-unknown-pragmas
    $<$<BOOL:${LS_WERROR}>:-Werror>)
  if(LS_SANITIZE)
    target_compile_options(lockstep_cuda_shim PRIVATE
      -fsanitize=${LS_SANITIZE} -fno-sanitize-recover=all)
  endif()
  # The driver's stand-in runs them as well, cuBLASLt's multiplies on its streams.
  target_sources(stand_in_libcuda_so_1 PRIVATE ${shim_sources} tests/support/stand_in/streams.c
    src/base/dtype.c)
  target_include_directories(stand_in_libcuda_so_1 PRIVATE include)
  target_compile_options(stand_in_libcuda_so_1 PRIVATE -O2 -g
    -Wno-unknown-pragmas $<$<COMPILE_LANGUAGE:CXX>:-fno-strict-aliasing>)
  set_target_properties(stand_in_libcuda_so_1 PROPERTIES
    CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON)
  foreach(major 12 13)
    target_sources(stand_in_libcublasLt_so_${major} PRIVATE tests/support/stand_in/products.c)
    target_compile_options(stand_in_libcublasLt_so_${major} PRIVATE -O3 -g)
  endforeach()
  target_sources(stand_in_libcudnn_so_9 PRIVATE tests/support/stand_in/graphs.c)
  target_compile_options(stand_in_libcudnn_so_9 PRIVATE -O3 -g)
  target_link_libraries(stand_in_libcudnn_so_9 PRIVATE m)
else()
  message(STATUS "C++: not found (CUDA kernels are not tested; g++ adds that)")
endif()

foreach(source ${test_sources} ${tree_tests})
  get_filename_component(name ${source} NAME_WE)
  if(source MATCHES "\\.sh$")
    lockstep_test(${name} ${CMAKE_SOURCE_DIR}/${source} ${CMAKE_BINARY_DIR}/lockstep)
  elseif(name MATCHES "^(cuda_(kernels|attention|shim|products|plans|steps|tuning|nccl|matrix)|peer_engine)_test$" AND NOT TARGET
      lockstep_cuda_shim)
    continue()
  elseif(LS_CMOCKA_FOUND)
    lockstep_test_program(${name} ${source})
    if(name MATCHES "^cuda_(kernels|attention|shim)_test$")
      target_link_libraries(${name} PRIVATE lockstep_cuda_shim)
    endif()
  endif()
endforeach()

# A program that opens NVIDIA's libraries finds the stand-ins, of so many GPUs.
function(lockstep_on_stand_ins gpus)
  foreach(name ${ARGN})
    if(TEST ${name})
      set_property(TEST ${name} APPEND PROPERTY
        ENVIRONMENT "LD_LIBRARY_PATH=${stand_in_folder}" "LS_STAND_IN=gpus=${gpus}")
    endif()
  endforeach()
endfunction()
lockstep_on_stand_ins(1 cuda_products_test cuda_plans_test cuda_steps_test)
lockstep_on_stand_ins(2 cuda_nccl_test cuda_tuning_test)
lockstep_on_stand_ins(3 peer_engine_test)
lockstep_on_stand_ins(8 cuda_matrix_test)

# Each example runs as a test, without arguments, from the root of the tree.
foreach(source ${example_sources})
  get_filename_component(name ${source} NAME_WE)
  lockstep_test(example_${name} ${CMAKE_BINARY_DIR}/examples/${name})
endforeach()

# Fuzz targets are built here without a fuzzer, to run over the kept corpus and what once failed.
foreach(source ${fuzz_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name}_replay ${source} tests/support/fuzz_replay.c)
  target_include_directories(${name}_replay PRIVATE tests)
  lockstep_library_of(${source} library)
  target_link_libraries(${name}_replay PRIVATE ${library} lockstep_options)
  set_target_properties(${name}_replay PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  string(REGEX REPLACE "_fuzz$" "" corpus ${name})
  lockstep_test(${name}_replay ${CMAKE_BINARY_DIR}/tests/${name}_replay tests/corpus/${corpus})
endforeach()
if(TARGET published_rows_test)
  target_sources(published_rows_test PRIVATE ${published_sources})
  target_include_directories(published_rows_test PRIVATE bench)
endif()

# What `make check` builds: without sanitizers all but the programs of tests that it runs with them
# alone, with sanitizers those of the tests that it runs so. Scripts run some of the former:
# cpu_isa_test.sh three, inject_command_test.sh an example.
set(LS_SCRIPTS_RUN "^((cpu|cpu_table|recipe)_test|example_.*)$")
get_property(checked_targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
list(REMOVE_ITEM checked_targets threaded_tests)
add_custom_target(checked)
foreach(target ${checked_targets})
  set(labels)
  if(TEST ${target})
    get_test_property(${target} LABELS labels)
  endif()
  if(LS_SANITIZE)
    set(pattern "quick")
  else()
    set(pattern "slow|release")
  endif()
  if(NOT labels OR labels MATCHES "${pattern}" OR target MATCHES "${LS_SCRIPTS_RUN}")
    add_dependencies(checked ${target})
  endif()
endforeach()
