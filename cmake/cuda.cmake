# CUDA kernels as fat binaries in the library, where nvcc is found. Nothing of CUDA is linked, and
# no host code is compiled by it: the driver loads what lies in ls_cuda_modules.
#
# NAME.log beside NAME.fatbin has the registers that each kernel takes (tools/kernel_check.sh).
#
# Kernels use no instruction that came after sm_80, so one PTX of that makes the machine code of all
# architectures, and stands beside it for later ones.
set(LS_CUDA auto CACHE STRING "CUDA kernels: auto (where nvcc 12.4 or later is found), on or off")
set(cuda_architectures 80 86 89 90 100 120)
set(cuda_kernels)
set(cuda_wanted TRUE)
if(NOT LS_CUDA OR (LS_CUDA STREQUAL "auto" AND (LS_SANITIZE OR LS_FUZZ)))
  set(cuda_wanted FALSE) # what is run with sanitizers is the shim's
  message(STATUS "CUDA kernels: not built (LS_CUDA)")
endif()
if(cuda_wanted)
  find_program(LS_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  set(nvcc_version 0)
  if(LS_NVCC)
    execute_process(COMMAND ${LS_NVCC} --version OUTPUT_VARIABLE nvcc_version)
    string(REGEX REPLACE ".*release ([0-9]+\\.[0-9]+).*" "\\1" nvcc_version "${nvcc_version}")
  endif()
  if(nvcc_version VERSION_LESS 12.4)
    set(cuda_wanted FALSE)
    if(LS_CUDA STREQUAL "auto")
      message(STATUS "CUDA kernels: not built (nvcc 12.4 or later was not found)")
    else()
      message(FATAL_ERROR "CUDA kernels: nvcc 12.4 or later was not found; set CUDA_HOME, or LS_CUDA=off")
    endif()
  endif()
endif()

set(cuda_codes "compute_80")
if(cuda_wanted)
  file(GLOB cuda_kernels RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS
    src/device/cuda/kernels/*.cu)
  execute_process(COMMAND ${LS_NVCC} --list-gpu-code OUTPUT_VARIABLE nvcc_codes)
  foreach(architecture ${cuda_architectures})
    if(nvcc_codes MATCHES "sm_${architecture}\n")
      string(APPEND cuda_codes ",sm_${architecture}")
    endif()
  endforeach()
  message(STATUS "CUDA kernels: nvcc ${nvcc_version} (${cuda_codes})")
endif()

set(cuda_declarations)
set(cuda_rows)
foreach(source ${cuda_kernels})
  get_filename_component(name ${source} NAME_WE)
  set(target ${CMAKE_BINARY_DIR}/cuda/${name}.fatbin)
  add_custom_command(OUTPUT ${target}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
    COMMAND sh -c "\"$@\" 2>\"$0\" || { cat \"$0\" >&2; exit 1; }"
      ${CMAKE_BINARY_DIR}/cuda/${name}.log
      ${LS_NVCC} -std=c++17 -O3 --resource-usage -fatbin -MD -MF ${target}.d -Xfatbin -compress-all
      "-gencode=arch=compute_80,code=[${cuda_codes}]" -I${CMAKE_SOURCE_DIR}/src
      -I${CMAKE_SOURCE_DIR}/include -o ${target} ${CMAKE_SOURCE_DIR}/${source}
    DEPENDS ${CMAKE_SOURCE_DIR}/${source} DEPFILE ${target}.d
    COMMENT "Building CUDA kernels of ${source}" VERBATIM)
  lockstep_embed(${target} ls_module_${name} library_sources)
  string(APPEND cuda_declarations
    "extern const unsigned char ls_module_${name}[];\nextern const size_t ls_module_${name}_bytes;\n")
  string(APPEND cuda_rows "  {\"${name}\", ls_module_${name}, &ls_module_${name}_bytes},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/embedded/ls_cuda_modules.c CONTENT
  "#include \"device/cuda/kernels/cuda_modules.h\"\n\n${cuda_declarations}
const ls_cuda_module ls_cuda_modules[] = {\n${cuda_rows}  {NULL, NULL, NULL},\n};\n" @ONLY)
list(APPEND library_sources ${CMAKE_BINARY_DIR}/embedded/ls_cuda_modules.c)
