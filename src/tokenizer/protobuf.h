/* The fields of a protocol buffer's message, one after the other.
 *
 *   ls_protobuf message = {data, bytes};
 *   ls_protobuf_field field;
 *   while (ls_protobuf_next(&message, &field)) ... field.number, field.text ...
 *   if (message.broken) ...
 *
 * Only what SentencePiece's models need. One thread at a time. */
#ifndef LS_TOKENIZER_PROTOBUF_H
#define LS_TOKENIZER_PROTOBUF_H

#include "tokenizer/token_buffer.h"

typedef struct ls_protobuf {
  const char *at;
  size_t left;
  bool broken; /* the message ended inside a field, or has a kind that nobody writes */
} ls_protobuf;

typedef struct ls_protobuf_field {
  uint32_t number;
  int kind; /* 0 whole number, 1 eight bytes, 2 bytes, 5 four bytes */
  uint64_t number_value;
  float float_value;
  ls_span text;
} ls_protobuf_field;

/* False at the end and where the message is broken. */
bool ls_protobuf_next(ls_protobuf *message, ls_protobuf_field *field);

#endif
