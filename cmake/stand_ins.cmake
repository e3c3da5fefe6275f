# Stand-ins of NVIDIA's libraries for tests, under the real names, in build/tests/stand_in: FILE with
# the calls of LIST in device/cuda/HEADER, of which those without a body answer ANSWER. Like the
# preloaded faults they are without sanitizers: they come between a program and its libraries.
set(stand_in_folder ${CMAKE_BINARY_DIR}/tests/stand_in)
add_custom_target(stand_ins)

function(lockstep_stand_in file body major header list answer)
  string(MAKE_C_IDENTIFIER stand_in_${file} target)
  add_library(${target} MODULE tests/support/stand_in/${body} tests/support/stand_in/rest.c
    tests/support/stand_in/stand_in.c)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE STAND_IN_HEADER="device/cuda/${header}"
    STAND_IN_CALLS=${list} STAND_IN_ANSWER=${answer} STAND_IN_MAJOR=${major})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter
    $<$<BOOL:${LS_WERROR}>:-Werror>)
  target_link_libraries(${target} PRIVATE Threads::Threads)
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${file}
    LIBRARY_OUTPUT_DIRECTORY ${stand_in_folder})
  add_dependencies(stand_ins ${target})
endfunction()

lockstep_stand_in(libcuda.so.1 driver.c 0 driver_calls.h LS_DRIVER_CALLS CUDA_ERROR_NOT_SUPPORTED)
lockstep_stand_in(libnvidia-ml.so.1 nvml.c 0 nvml_calls.h LS_NVML_CALLS NVML_ERROR_NOT_SUPPORTED)
# 15: CUBLAS_STATUS_NOT_SUPPORTED. 3000: CUDNN_STATUS_NOT_SUPPORTED. 5: ncclInvalidUsage.
lockstep_stand_in(libcublasLt.so.13 compute.c 13 cublaslt_calls.h LS_CUBLASLT_CALLS 15)
lockstep_stand_in(libcublasLt.so.12 compute.c 12 cublaslt_calls.h LS_CUBLASLT_CALLS 15)
lockstep_stand_in(libcudnn.so.9 compute.c 9 cudnn_calls.h LS_CUDNN_CALLS 3000)
lockstep_stand_in(libnccl.so.2 nccl.c 2 nccl_calls.h LS_NCCL_CALLS 5)
target_sources(stand_in_libnccl_so_2 PRIVATE tests/support/stand_in/nccl_work.c)
target_compile_options(stand_in_libnccl_so_2 PRIVATE -O2 -g)

# The driver that cuDNN plans on without a GPU (tests/cudnn_plans_test.c), found by its name.
add_library(stand_in_planner MODULE tests/support/stand_in/planner.c)
target_compile_options(stand_in_planner PRIVATE -Wall -Wextra $<$<BOOL:${LS_WERROR}>:-Werror>)
target_link_options(stand_in_planner PRIVATE -Wl,-soname,libcuda.so.1)
set_target_properties(stand_in_planner PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME libcuda.so.1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/planner)
add_dependencies(stand_ins stand_in_planner)
