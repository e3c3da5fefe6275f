# A file of the tree, or one that the build makes (its whole path), as an array of bytes in the
# library: NAME and NAME_bytes. As a script (cmake -P) this writes the C file; included, it adds the
# function that has the build do so.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${LS_EMBED_SOURCE} bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR count "${digits} / 2")
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "((0x..,){20})" "\\1\n" bytes "${bytes}")
  file(WRITE ${LS_EMBED_TARGET}
    "#include <stddef.h>\n"
    "extern const unsigned char ${LS_EMBED_NAME}[];\n"
    "extern const size_t ${LS_EMBED_NAME}_bytes;\n"
    "_Alignas(16) const unsigned char ${LS_EMBED_NAME}[] = {\n${bytes}\n};\n"
    "const size_t ${LS_EMBED_NAME}_bytes = ${count};\n")
  return()
endif()

function(lockstep_embed source name list)
  set(target ${CMAKE_BINARY_DIR}/embedded/${name}.c)
  get_filename_component(source ${source} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  add_custom_command(OUTPUT ${target}
    COMMAND ${CMAKE_COMMAND} -D LS_EMBED_SOURCE=${source}
      -D LS_EMBED_TARGET=${target} -D LS_EMBED_NAME=${name}
      -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${source} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    COMMENT "Embedding ${source}" VERBATIM)
  set(${list} ${${list}} ${target} PARENT_SCOPE)
endfunction()
