/* The byte tokenizer as the files that Hugging Face's tokenizers and transformers read: byte-level
 * BPE without merges. Thread-safe. */
#ifndef LS_TOKENIZER_BYTE_FORM_H
#define LS_TOKENIZER_BYTE_FORM_H

#include "tokenizer/tokenizer.h"

/* Writes tokenizer.json and tokenizer_config.json into a folder. */
LS_CHECKED ls_status ls_byte_form_write(const char *folder, ls_error *error);

/* Whether a tokenizer.json gives the ids that the one written above gives. */
bool ls_byte_form_is(const char *text, size_t bytes);

#endif
