/* The characters of each class, as the libraries that tokenizers were trained with have them: the
 * same on every machine, whatever Unicode the installed libraries know. unicode_tables.c is made
 * by tools/reference/make_unicode_tables.py and says which versions they are. Constant. */
#ifndef LS_TOKENIZER_UNICODE_TABLES_H
#define LS_TOKENIZER_UNICODE_TABLES_H

#include <stdint.h>

/* The characters from first to last. */
typedef struct ls_point_range {
  uint32_t first, last;
} ls_point_range;

/* Ranges in order that do not touch. */
typedef struct ls_named_points {
  const char *name;
  const ls_point_range *ranges;
  int count;
} ls_named_points;

/* Of categories and scripts. */
extern const char ls_unicode_version[];

/* "LuLl...": two letters for each category; the first character of each run of one category,
 * times 256, and the category's number there. */
extern const char ls_category_names[];
extern const uint32_t ls_category_runs[];
extern const int ls_category_run_count;

/* Ends with one without a name. */
extern const ls_named_points ls_scripts[];

extern const ls_named_points ls_points_spaces;       /* White_Space */
extern const ls_named_points ls_points_word_symbols; /* Alphabetic, but symbols */
extern const ls_named_points ls_points_numbers;      /* what a Digits step takes */
extern const ls_named_points ls_points_marks;        /* what a Punctuation step takes */
extern const ls_named_points ls_points_forms;        /* what normal forms act on */
extern const ls_named_points ls_points_accents;      /* what BertNormalizer leaves out as accents */
extern const ls_named_points ls_points_cleaned;      /* and as no text */
extern const ls_named_points ls_points_han_blocks;   /* and puts between blanks */

#endif
