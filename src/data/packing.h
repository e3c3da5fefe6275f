/* Whole examples packed into sequences: which lie in which, as a function of their lengths and
 * their order alone.
 *
 *   const ls_packing_room room = {.seq_len = 512, .too_long = LS_TOO_LONG_DROP};
 *   LS_TRY(ls_packing_make(arena, &part, &room, &packing, error));
 *   for (int64_t p = packing->rows[r]; p < packing->rows[r + 1]; p++) ... packing->pieces[p] ...
 *
 * Longest first, each goes where it leaves the least room (best fit decreasing). An example that is
 * longer than a sequence is dropped, cut at its end, or split. Constant once made: thread-safe. */
#ifndef LS_DATA_PACKING_H
#define LS_DATA_PACKING_H

#include "data/text_part.h"

/* Tokens [first, first + count) of the corpus: an example, or its beginning. */
typedef struct ls_packed_piece {
  int64_t first;
  int32_t count;
  int32_t chosen; /* of a pair the tokens of the first of its two documents; 0: one document */
  int64_t label;  /* the corpus' token that is the text's class, or the first token's; 0: none is */
  int32_t labels; /* how many there are, from that one on */
} ls_packed_piece;

typedef enum ls_too_long { LS_TOO_LONG_DROP = 0, LS_TOO_LONG_CUT, LS_TOO_LONG_SPLIT } ls_too_long;

/* What a sequence has room for. */
typedef struct ls_packing_room {
  int64_t seq_len;
  int64_t most;         /* examples of a sequence; 0: as many as fit */
  ls_too_long too_long; /* CUT: the beginning stays; SPLIT: into pieces that go by themselves, each
                         * from the last token of the one before on */
} ls_packing_room;

typedef struct ls_packing {
  const ls_packed_piece *pieces; /* of the rows, one after another */
  const int64_t *rows;           /* [row_count + 1] the first piece of each */
  int64_t row_count;
  int64_t examples; /* that are packed; of one that is split its pieces */
  int64_t tokens, trained;
  int64_t distinct; /* of these tokens each once: pieces of one example share their ends */
  int64_t dropped, cut, split; /* too long */
  bool labelled;               /* texts with a class */
  bool first;                  /* which is asked of their first token, not the last */
  bool each;                   /* or of each token one */
  bool several;                /* or a set of them: as many tokens as the text has classes */
  bool texts;                  /* pairs of texts, whose first tokens are the trained ones */
  int64_t unasked;             /* left out: what is trained of them was cut off */
} ls_packing;

/* Of the documents of a part whose corpus is marked. Errors: as ls_corpus_copy has. */
LS_CHECKED ls_status ls_packing_make(ls_arena *arena, const ls_text_part *part,
                                     const ls_packing_room *room, const ls_packing **packing,
                                     ls_error *error);

/* The same of pairs of answers: documents two and two, which lie side by side in one sequence. None
 * is cut; one whose documents have no room together, or one of them more than `longest` tokens, is
 * dropped. */
LS_CHECKED ls_status ls_packing_make_pairs(ls_arena *arena, const ls_text_part *part,
                                           const ls_packing_room *room, int64_t longest,
                                           const ls_packing **packing, ls_error *error);

/* The same of texts with a class, which is the last token of each document and takes no room; none
 * is split. `several`: with a set of classes, which are all trained tokens at its end, or none.
 * `first`: they are asked of the text's first token. */
LS_CHECKED ls_status ls_packing_make_labelled(ls_arena *arena, const ls_text_part *part,
                                              const ls_packing_room *room, bool several, bool first,
                                              const ls_packing **packing, ls_error *error);

/* The same of texts whose words have classes: marks lie behind each document's ids, as many. A text
 * none of whose words has a class is left out. */
LS_CHECKED ls_status ls_packing_make_each(ls_arena *arena, const ls_text_part *part,
                                          const ls_packing_room *room, const ls_packing **packing,
                                          ls_error *error);

/* The same of pairs of texts, which are a document each, none cut: room->most is not 0. */
LS_CHECKED ls_status ls_packing_make_texts(ls_arena *arena, const ls_text_part *part,
                                           const ls_packing_room *room, const ls_packing **packing,
                                           ls_error *error);

/* All documents, or what the part has of its first and its last: of one that is longer than a
 * sequence pieces, each of which begins with the last token of the one before, so that every token
 * but the first is asked for once. `seq_len` is 2 or more. */
LS_CHECKED ls_status ls_packing_make_documents(ls_arena *arena, const ls_text_part *part,
                                               int64_t seq_len, const ls_packing **packing,
                                               ls_error *error);

#endif
