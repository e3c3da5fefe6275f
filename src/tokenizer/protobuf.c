#include "tokenizer/protobuf.h"

#include <string.h>

static bool fail(ls_protobuf *message) {
  message->broken = true;
  return false;
}

static bool take_varint(ls_protobuf *message, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (!message->left) return fail(message);
    const unsigned char byte = (unsigned char)*message->at++;
    message->left--;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return fail(message);
}

static bool take_bytes(ls_protobuf *message, size_t bytes, ls_span *text) {
  if (bytes > message->left) return fail(message);
  *text = (ls_span){message->at, bytes};
  message->at += bytes;
  message->left -= bytes;
  return true;
}

bool ls_protobuf_next(ls_protobuf *message, ls_protobuf_field *field) {
  uint64_t key, length;
  *field = (ls_protobuf_field){0};
  if (!message->left || message->broken) return false;
  if (!take_varint(message, &key)) return false;
  if (key >> 3 == 0 || key >> 3 > UINT32_MAX) return fail(message);
  field->number = (uint32_t)(key >> 3);
  field->kind = (int)(key & 7);
  switch (field->kind) {
    case 0: return take_varint(message, &field->number_value);
    case 1: return take_bytes(message, 8, &field->text);
    case 2:
      if (!take_varint(message, &length)) return false;
      return take_bytes(message, length > message->left ? SIZE_MAX : (size_t)length, &field->text);
    case 5:
      if (!take_bytes(message, 4, &field->text)) return false;
      memcpy(&field->float_value, field->text.text, sizeof field->float_value);
      return true;
  }
  return fail(message);
}
