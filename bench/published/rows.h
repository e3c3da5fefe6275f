/* Rows of published measurements, and how far predictions are from them.
 *
 *   published_table table;
 *   published_read(arena, text, &table);
 *   table.rows.items[0].predicted = 1.5;
 *   published_take_value(&table, &table.rows.items[0]);
 *   published_score score = published_judge(arena, &table, "BLOOM-prequel", PUBLISHED_TIME);
 *
 * All is its arena's. One thread at a time. */
#ifndef BENCH_PUBLISHED_ROWS_H
#define BENCH_PUBLISHED_ROWS_H

#include <stdbool.h>

#include "base/arena.h"

enum { PUBLISHED_COLUMNS = 64 };

typedef enum published_kind { PUBLISHED_TIME = 0, PUBLISHED_MEMORY } published_kind;

typedef struct published_row {
  const char *cells[PUBLISHED_COLUMNS];
  double predicted;   /* step time in s, or memory of a device in GiB */
  double measured;    /* likewise; NAN: none that can be compared */
  double capacity;    /* of a device, in GiB */
  double flops, peak; /* of the step as its publisher counts, and a second of a device at best */
  bool out_of_memory; /* that was measured */
  int machines;       /* an ls_interval_kind; -1: not known */
  const char *why;    /* it cannot be done; NULL: it was */
} published_row;

typedef struct published_table {
  const char *columns[PUBLISHED_COLUMNS];
  int column_count;
  LS_LIST(published_row) rows;
} published_table;

/* A CSV with a header (RFC 4180). */
void published_read(ls_arena *arena, const char *text, published_table *made);

/* A cell's text, "" where there is none; and as a number, `otherwise` where it is empty. */
const char *published_cell(const published_table *of, const published_row *row, const char *column);
double published_number(const published_table *of, const published_row *row, const char *column,
                        double otherwise);

/* What a row that ran out of memory says is memory, whatever was to be measured. */
published_kind published_kind_of(const published_table *of, const published_row *row);

/* Whether a row is of the half on which constants are fitted: its row_id's hash is even. */
bool published_is_fitted(const published_table *of, const published_row *row);

/* Flops of one step of the whole batch as the row's publisher counts them: of the model, or with
 * those that full recomputation repeats (`repeated`). `gated`: its MLP has three matrices. */
double published_flops(const published_table *of, const published_row *row, bool gated,
                       bool repeated);

/* Reads what was measured, after everything is predicted. Of rows that tell only a rate or a share,
 * `flops` and `peak` are set before. */
void published_take_value(const published_table *of, published_row *row);

/* Of rows of one source, or of all (NULL), of one kind. Shares: 0.1 is 10 %. */
typedef struct published_score {
  int rows, done;
  double median, p90, worst; /* of errors without their sign */
  double bias;               /* median with it */
  double tau;                /* Kendall's, of predicted and measured; NAN: no pairs */
} published_score;

published_score published_judge(ls_arena *arena, const published_table *of, const char *source,
                                published_kind kind);

/* Measured over predicted, of the times of one kind of machine. */
typedef struct published_spread {
  int rows, sources;
  double low, middle, high; /* a tenth is below low, a tenth above high */
} published_spread;

published_spread published_spread_of(ls_arena *arena, const published_table *of, int machines);

/* predicted / measured - 1 */
double published_error(const published_row *row);

/* Whether a row's prediction says that it fits: within nine tenths of the device. What is left is
 * for what no accounting has: the driver's context, fragments, buffers of communicators. */
bool published_fits(const published_row *row);

/* How memory was called: rows that ran out of it, and those whose memory was measured as they ran.
 */
typedef struct published_calls {
  int out_of_memory, refused, called_fitting; /* refused: predicted not to fit; the rest of the rows
                                                 that ran out could not be done */
  int fitted, held, called_large;             /* likewise: held is right */
} published_calls;

published_calls published_count_calls(const published_table *of);

/* Sources in the order of their first rows. */
const char **published_sources(ls_arena *arena, const published_table *of, int *count);

#endif
