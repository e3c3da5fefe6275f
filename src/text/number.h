/* Numbers and sizes as texts, the same in every locale.
 *
 *   char text[LS_NUMBER_BYTES];
 *   ls_number_write(text, 0.1);
 *   if (!ls_size_read("2GiB", &bytes)) ...
 *
 * Thread-safe: no state. */
#ifndef LS_TEXT_NUMBER_H
#define LS_TEXT_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

enum { LS_NUMBER_BYTES = 32 };

/* A finite number as the run file has them ("3e-4", "-.5", "10"); the whole text or false. */
bool ls_number_read(const char *text, double *value);

/* A size: a whole number of bytes, or a number with B, KB, MB, GB, TB (powers of 1000) or KiB, MiB,
 * GiB, TiB (powers of 1024); blanks may stand between; "1.5GiB" is fine, being whole bytes. */
bool ls_size_read(const char *text, int64_t *bytes);

/* The shortest decimal that reads back to the same value; "null" for what is not finite, which
 * JSON cannot say otherwise. */
void ls_number_write(char text[LS_NUMBER_BYTES], double value);

/* "2GiB" where the size is a whole count of some binary unit, else plain bytes. */
void ls_size_write(char text[LS_NUMBER_BYTES], int64_t bytes);

/* To one digit after the point, for people: "812.4 MiB". */
void ls_size_show(char text[LS_NUMBER_BYTES], double bytes);

/* How long something takes, for people: "812.4 us", "1.234 s", "3.2 h", "60.1 days". */
void ls_seconds_show(char text[LS_NUMBER_BYTES], double seconds);

/* A count with a power of 1000 behind it, in either case: "300M", "1B", "2.5T"; positive and below
 * 1e18; the whole text or false. */
bool ls_count_read(const char *text, double *count);

/* A time as Slurm's users think of it: "12h", "60d", "4w" in seconds; plain numbers are seconds. */
bool ls_time_read(const char *text, double *seconds);

#endif
