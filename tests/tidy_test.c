/* Holds the house in order: rooms include only rooms above them, sizes stay readable, calls that
 * end the process or overflow stay out, public functions say what they do, and every file is
 * tested. First over snippets that are wrong on purpose, then over the tree. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

enum { MAX_FILE_LINES = 800, MAX_FUNCTION_LINES = 70, MAX_COLUMNS = 100 };

typedef LS_LIST(char *) texts;

typedef struct tidy {
  ls_arena *arena;
  texts rooms;     /* src/rooms.txt, upper rooms first */
  texts may_alloc; /* tests/support/may_allocate.txt */
  texts complaints;
} tidy;

static void complain(tidy *state, const char *path, int line, const char *what) {
  *LS_APPEND(state->arena, &state->complaints) =
      ls_arena_printf(state->arena, "%s:%d: %s", path, line, what);
}

static bool starts_with(const char *text, const char *start) {
  return !strncmp(text, start, strlen(start));
}

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length >= tail && !strcmp(text + length - tail, end);
}

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

/* Tests, what they share (test_NAME.h), fuzz targets and measurements. */
static bool is_test(const char *path) {
  const char *slash = strrchr(path, '/');
  if (slash && starts_with(slash, "/test_")) return true;
  return ends_with(path, "_test.c") || ends_with(path, "_fuzz.c") || ends_with(path, "_bench.c") ||
         !starts_with(path, "src/");
}

static int list_find(const texts *list, const char *text, size_t length) {
  for (int i = 0; i < list->count; i++) {
    if (strlen(list->items[i]) == length && !strncmp(list->items[i], text, length)) return i;
  }
  return -1;
}

/* The lines of a file that are not empty, each up to its first blank. */
static void read_words(tidy *state, const char *path, texts *list) {
  ls_error error = {0};
  char *text;
  size_t bytes;
  if (ls_file_read(state->arena, path, &text, &bytes, &error) != LS_OK) fail_msg("%s", error.text);
  for (char *line; (line = strsep(&text, "\n"));) {
    char *word = strsep(&line, " ");
    if (*word && *word != '#') *LS_APPEND(state->arena, list) = word;
  }
}

static int set_up(void **given) {
  ls_arena *arena = ls_arena_create();
  tidy *state = LS_NEW(arena, tidy);
  state->arena = arena;
  read_words(state, "src/rooms.txt", &state->rooms);
  read_words(state, "tests/support/may_allocate.txt", &state->may_alloc);
  *given = state;
  return 0;
}

static int tear_down(void **given) {
  tidy *state = *given;
  ls_arena *arena = state->arena;
  ls_arena_destroy(&arena);
  return 0;
}

/* Where the comment or literal that starts at `at` ends; `at` itself where none starts. */
static char *skip_quiet(char *at) {
  if (starts_with(at, "//")) return at + strcspn(at, "\n");
  if (starts_with(at, "/*")) {
    char *end = strstr(at + 2, "*/");
    return end ? end + 2 : at + strlen(at);
  }
  if (*at != '"' && *at != '\'') return at;
  char *end = at + 1;
  while (*end && *end != *at && *end != '\n') end += end[0] == '\\' && end[1] ? 2 : 1;
  return *end == *at ? end + 1 : end;
}

/* A preprocessor line with its continuations ends here. */
static char *skip_directive(char *at) {
  while (*at && *at != '\n') at += at[0] == '\\' && at[1] ? 2 : 1;
  return at;
}

/* The code alone: comments, literals and directives become blanks, lines stay where they are. */
static char *only_code(tidy *state, const char *text) {
  char *code = ls_arena_strdup(state->arena, text);
  bool line_start = true;
  for (char *at = code; *at;) {
    char *end = line_start && *at == '#' ? skip_directive(at) : skip_quiet(at);
    for (; at < end; at++) *at = *at == '\n' ? '\n' : ' ';
    if (!*at) break;
    if (*at == '\n') {
      line_start = true;
    } else if (!isspace((unsigned char)*at)) {
      line_start = false;
    }
    if (skip_quiet(at) == at && !(line_start && *at == '#')) at++;
  }
  return code;
}

static void check_lines(tidy *state, const char *path, const char *text) {
  int line = 1, columns = 0;
  for (; *text; text++) {
    if (*text == '\n') {
      if (columns > MAX_COLUMNS) complain(state, path, line, "longer than 100 columns");
      line++;
      columns = 0;
    } else if ((*text & 0xc0) != 0x80) { /* a character of several bytes is one column */
      columns++;
    }
  }
  if (line - 1 > MAX_FILE_LINES) complain(state, path, line - 1, "longer than 800 lines");
}

/* Braces at depth 0 after a ')' open a function; `extern "C" {` opens nothing. */
static void check_functions(tidy *state, const char *path, const char *code) {
  int line = 1, start = 0, depth = 0;
  bool in_function = false;
  const char *before = code; /* the last character that is not blank */
  for (const char *at = code; *at; at++) {
    if (*at == '\n') line++;
    if (isspace((unsigned char)*at)) continue;
    if (depth == 0 && start == 0) start = line;
    if (*at == '{') {
      const bool linkage = depth == 0 && before - code >= 5 && !strncmp(before - 5, "extern", 6);
      if (depth == 0 && *before == ')') in_function = true;
      if (linkage) {
        start = 0;
      } else {
        depth++;
      }
    } else if (*at == '}' && depth > 0 && --depth == 0) {
      if (in_function && line - start + 1 > MAX_FUNCTION_LINES) {
        complain(state, path, start, "function longer than 70 lines");
      }
      in_function = false;
      start = 0;
    } else if (*at == ';' && depth == 0) {
      start = 0;
    }
    before = at;
  }
}

/* Rooms that read compiled programs, and what they may not know of how those are made. */
static const char *const readers[] = {"check", "sim", "comm", "run", "watch", NULL};
static const char *const makers[] = {"shard", "schedule", "lower", "session", NULL};

static bool is_room_of(const char *const *rooms, const char *name) {
  for (; *rooms; rooms++)
    if (starts_with(name, *rooms) && name[strlen(*rooms)] == '/') return true;
  return false;
}

static void check_includes(tidy *state, const char *path, const char *text) {
  const bool public_header = starts_with(path, "include/");
  int own = -1;
  if (starts_with(path, "src/")) {
    own = list_find(&state->rooms, path + 4, strcspn(path + 4, "/"));
    if (own < 0) complain(state, path, 1, "its folder is not in src/rooms.txt");
  }
  int line = 1;
  for (const char *at = text; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL, line++) {
    if (!starts_with(at, "#include \"")) continue;
    const char *name = at + strlen("#include \"");
    const size_t length = strcspn(name, "/\"\n");
    if (starts_with(name, "lockstep/")) continue;
    if (starts_with(name, "support/") && is_test(path)) continue; /* tests/support */
    if (starts_with(name, "cuda/") && is_test(path)) continue;    /* tests/cuda */
    if (starts_with(name, "published/") &&
        (starts_with(path, "bench/") || starts_with(path, "tests/")))
      continue; /* bench/published */
    const int room = name[length] == '/' ? list_find(&state->rooms, name, length) : -1;
    if (public_header) {
      complain(state, path, line, "a public header includes only lockstep/ headers");
    } else if (room < 0) {
      complain(state, path, line, "includes are written \"room/file.h\", with a room of rooms.txt");
    } else if (own >= 0 && room > own) {
      complain(state, path, line, "includes a room below its own (src/rooms.txt has the order)");
    } else if (own >= 0 && !is_test(path) && is_room_of(readers, path + 4) &&
               is_room_of(makers, name)) {
      complain(state, path, line, "reads programs, and includes what makes them: expected ir");
    } else if (starts_with(name, "run/rank_memory.h\"") && !starts_with(path, "src/run/")) {
      complain(state, path, line, "follows addresses in a rank's memory: use ls_rank_get, _put");
    }
  }
}

/* Which device computes, with how many threads, and which engine moves data is said by tables. */
static void check_devices(tidy *state, const char *path, const char *text) {
  static const struct {
    const char *word, *room, *complaint;
  } held[] = {
      {"#include \"device/cpu/", "src/device/", "knows one kind of device: ask device/device.h"},
      {"#include \"device/cuda/", "src/device/", "knows one kind of device: ask device/device.h"},
      {"#include \"device/reference/", "src/device/",
       "knows one kind of device: ask device/device.h"},
      {"#include <omp.h>", "src/device/", "has threads of its own: ask ls_host_share"},
      {"#pragma omp parallel", "src/device/", "has threads of its own: ask ls_host_share"},
      {"ls_world_create_", "src/comm/", "chooses an engine: ask ls_world_start"}};
  if (is_test(path) || starts_with(path, "src/base/")) return;
  for (size_t h = 0; h < sizeof held / sizeof *held; h++) {
    const char *at = strstr(text, held[h].word);
    if (!at || starts_with(path, held[h].room)) continue;
    int line = 1;
    for (const char *c = text; c < at; c++) line += *c == '\n';
    complain(state, path, line, held[h].complaint);
  }
}

/* Calls `name` of a list of words is among those at `at`. */
static const char *banned_here(const char *const *names, const char *at, size_t length) {
  for (; *names; names++) {
    if (strlen(*names) == length && !strncmp(*names, at, length)) return *names;
  }
  return NULL;
}

static void check_calls(tidy *state, const char *path, const char *code) {
  static const char *const everywhere[] = {"strcpy", "strcat", "sprintf", "vsprintf",
                                           "gets",   "strtok", "alloca",  NULL};
  static const char *const library[] = {"exit",    "_exit", "quick_exit", "printf",
                                        "vprintf", "puts",  "abort",      "putchar",
                                        "stdout",  "atoi",  "system",     NULL};
  static const char *const allocation[] = {"malloc",        "calloc",         "realloc",
                                           "aligned_alloc", "posix_memalign", NULL};
  const bool in_library = !is_test(path) && !starts_with(path, "src/cli/");
  const bool may_allocate = !in_library || starts_with(path, "src/base/") ||
                            list_find(&state->may_alloc, path, strlen(path)) >= 0;
  const bool panics = !strcmp(path, "src/base/arena.c");
  int line = 1;
  for (const char *at = code; *at;) {
    const size_t length = is_word(*at) ? strspn(at,
                                                "abcdefghijklmnopqrstuvwxyz_0123456789"
                                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
                                       : 0;
    if (!length) {
      line += *at++ == '\n';
      continue;
    }
    const bool member = at > code && (at[-1] == '.' || at[-1] == '>');
    const char *after = at + length + strspn(at + length, " \n");
    const bool stream = length == 6 && !strncmp(at, "stdout", 6);
    const char *bad = NULL;
    if (!member && (*after == '(' || stream)) {
      bad = banned_here(everywhere, at, length);
      if (!bad && in_library && !panics) bad = banned_here(library, at, length);
      if (!bad && !may_allocate) bad = banned_here(allocation, at, length);
    }
    if (bad) {
      complain(state, path, line, ls_arena_printf(state->arena, "'%s' is not used here", bad));
    }
    at += length;
  }
}

/* A declaration of a function at the left margin: its paragraph must have begun with a comment. */
static void check_documented(tidy *state, const char *path, const char *text) {
  if (!starts_with(path, "include/")) return;
  bool documented = false, inside = false;
  int line = 0;
  char *rest = ls_arena_strdup(state->arena, text);
  for (char *each; (each = strsep(&rest, "\n"));) {
    line++;
    if (!*each) documented = false;
    if (strstr(each, "/*")) documented = true;
    const bool declares = isalpha((unsigned char)*each) && strchr(each, '(') && !inside &&
                          !starts_with(each, "typedef") && !starts_with(each, "static inline");
    if (declares && !documented) complain(state, path, line, "a public function without comment");
    /* What follows a brace at the end of a line, until one at the margin, is a body. */
    if (ends_with(each, "{") && !starts_with(each, "extern")) inside = true;
    if (*each == '}') inside = false;
  }
}

static void check_words(tidy *state, const char *path, const char *text) {
  /* Written in halves, so that this file does not name them itself. */
  static const char *const left_open[] = {
      "TO"
      "DO",
      "FIX"
      "ME",
      "XX"
      "X:",
      "#if"
      " 0"};
  for (size_t i = 0; i < sizeof left_open / sizeof *left_open; i++) {
    const char *at = strstr(text, left_open[i]);
    if (!at) continue;
    int line = 1;
    for (const char *c = text; c < at; c++) line += *c == '\n';
    complain(state, path, line, "work left open: finish it or refuse it at run time");
  }
  if (ends_with(path, ".h") && !starts_with(text, "/* ")) {
    complain(state, path, 1, "a header opens with a comment that says what it is for");
  }
}

/* Axes are rows: only what makes a mesh of a layout, and the run file, know one by its name or
 * number. A key of the run file ("mesh." before it) is what a user writes. */
static void check_axes(tidy *state, const char *path, const char *text) {
  static const char *const know[] = {"src/ir/mesh.", "src/ir/layout.", "src/shard/strategy.",
                                     "src/cli/show_candidates.", "src/text/run_"};
  static const char *const names[] = {"dp_replicate", "dp_shard", "tp_kv", "tp_group", "LS_AXIS_"};
  bool may = is_test(path);
  for (size_t i = 0; i < sizeof know / sizeof *know; i++) may |= starts_with(path, know[i]);
  for (size_t i = 0; i < sizeof names / sizeof *names && !may; i++)
    for (const char *at = strstr(text, names[i]); at; at = strstr(at + 1, names[i])) {
      if (at - text >= 5 && starts_with(at - 5, "mesh.")) continue;
      int line = 1;
      for (const char *c = text; c < at; c++) line += *c == '\n';
      complain(state, path, line, "names an axis: ask the mesh for those of a role, or the layout");
    }
}

/* What a test draws is the same each time, or what LS_SEED says: tests/support/test_seed.h. */
static void check_seeds(tidy *state, const char *path, const char *text) {
  static const char *const asks[] = {
      "getenv(\"LS_"
      "SEED\")",
      "seed = (uint64_t)"
      "time(",
      "seed = ti"
      "me(",
      "random_state = (uint64_t)"
      "time("};
  if (!is_test(path) || ends_with(path, "/test_seed.h")) return;
  for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
    const char *at = strstr(text, asks[i]);
    int line = 1;
    for (const char *c = text; at && c < at; c++) line += *c == '\n';
    if (at) complain(state, path, line, "a test takes its seed from support/test_seed.h");
  }
}

static void check_file(tidy *state, const char *path, const char *text) {
  const char *code = only_code(state, text);
  check_lines(state, path, text);
  check_functions(state, path, code);
  check_includes(state, path, text);
  check_devices(state, path, text);
  check_calls(state, path, code);
  check_documented(state, path, text);
  check_words(state, path, text);
  check_axes(state, path, text);
  check_seeds(state, path, text);
}

/* What the rule about tests knows of a file. */
typedef struct source {
  const char *path;
  texts names; /* functions and tables that it defines, for other files to use */
  texts words; /* all it says, sorted */
  bool reached;
} source;

typedef LS_LIST(source) sources;

static int compare_texts(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_words(tidy *state, const char *code, texts *words) {
  for (const char *at = code; *at;) {
    const char *end = at;
    while (is_word(*end)) end++;
    if (end > at)
      *LS_APPEND(state->arena, words) = ls_arena_printf(state->arena, "%.*s", (int)(end - at), at);
    at = end + (end == at);
  }
  if (words->count) qsort(words->items, (size_t)words->count, sizeof *words->items, compare_texts);
}

/* The name that a definition's head ends with: `int f(...)`, `const x a[] =`. Names made of a macro
 * are told by what others call them: LS_REFERENCE(ADD) is the kernel of LS_OP_ADD. */
static void add_name(tidy *state, const char *head, size_t length, texts *names) {
  static const char *const made[][2] = {{"LS_REFERENCE", "LS_OP_"}, {"LS_VECTOR", ""}};
  const char *start = "", *at = memchr(head, '(', length), *array = memchr(head, '[', length);
  if (!at || (array && array < at)) at = array ? array : head + length;
  const char *end = at;
  while (end > head && !is_word(end[-1])) end--;
  const char *first = end;
  while (first > head && is_word(first[-1])) first--;
  for (size_t m = 0; m < sizeof made / sizeof *made; m++) {
    if (strlen(made[m][0]) != (size_t)(end - first) ||
        strncmp(first, made[m][0], strlen(made[m][0])))
      continue;
    start = made[m][1];
    for (first = end = at + 1; is_word(*end);) end++;
    break;
  }
  *LS_APPEND(state->arena, names) =
      ls_arena_printf(state->arena, "%s%.*s", start, (int)(end - first), first);
}

/* Functions with a body and tables with a value, but for static ones. */
static void add_names(tidy *state, const char *code, texts *names) {
  int depth = 0;
  bool told = false, function = false; /* of this definition: whether its name is told; its kind */
  const char *head = NULL;             /* where it begins */
  const char *before = code;           /* the last character that is not blank */
  for (const char *at = code; *at; at++) {
    if (isspace((unsigned char)*at)) continue;
    if (depth == 0 && !head) head = at;
    if (depth == 0 && !told && ((*at == '{' && *before == ')') || *at == '=')) {
      told = true;
      function = *at == '{';
      if (!starts_with(head, "static") && !starts_with(head, "typedef"))
        add_name(state, head, (size_t)(at - head), names);
    }
    depth += (*at == '{') - (*at == '}');
    if (depth == 0 && (*at == ';' || (*at == '}' && function))) {
      head = NULL;
      told = function = false;
    }
    before = at;
  }
}

static bool names_any(const source *by, const source *of) {
  for (int n = 0; n < of->names.count; n++)
    if (by->words.count && bsearch(&of->names.items[n], by->words.items, (size_t)by->words.count,
                                   sizeof *by->words.items, compare_texts))
      return true;
  return false;
}

static bool same_room(const char *a, const char *b) {
  const size_t length = strcspn(a + 4, "/") + 5;
  return starts_with(a, "src/") && !strncmp(a, b, length);
}

/* What runs by itself: tests, examples, and the command, which scripts call. */
static bool is_run(const char *path) {
  return starts_with(path, "tests/") || starts_with(path, "examples/") ||
         ends_with(path, "_test.c") || ends_with(path, "_fuzz.c") ||
         !strcmp(path, "src/cli/main.c");
}

static void add_source(tidy *state, sources *all, const char *path, const char *text) {
  if (!ends_with(path, ".c") || ends_with(path, "_bench.c") || starts_with(path, "bench/")) return;
  const char *code = only_code(state, text);
  source *each = LS_APPEND(state->arena, all);
  *each = (source){.path = path, .reached = is_run(path)};
  add_words(state, code, &each->words);
  if (!each->reached) add_names(state, code, &each->names);
}

/* A test names something that each file defines, or a file of the same room does that is tested:
 * inner parts are tested through their whole. */
static void check_tested(tidy *state, sources *all) {
  for (bool more = true; more;) {
    more = false;
    for (int f = 0; f < all->count; f++)
      for (int by = 0; by < all->count && !all->items[f].reached; by++) {
        const source *from = &all->items[by];
        if (!from->reached || !names_any(from, &all->items[f])) continue;
        if (!is_run(from->path) && !same_room(from->path, all->items[f].path)) continue;
        more = all->items[f].reached = true;
      }
  }
  for (int f = 0; f < all->count; f++)
    if (!all->items[f].reached)
      complain(state, all->items[f].path, 1,
               "no test names what it defines, nor does a tested file of its room");
}

static void assert_complaint(tidy *state, const char *path, const char *text,
                             const char *expected) {
  state->complaints.count = 0;
  check_file(state, path, text);
  if (!expected) {
    if (state->complaints.count) fail_msg("not clean: %s", state->complaints.items[0]);
    return;
  }
  if (!state->complaints.count) fail_msg("nothing said of: %s", text);
  assert_string_equal(state->complaints.items[0], expected);
  assert_int_equal(state->complaints.count, 1);
}

static void order_of_rooms_is_held(void **given) {
  tidy *state = *given;
  assert_int_equal(list_find(&state->rooms, "base", 4), 0);
  assert_complaint(state, "src/graph/a.c", "#include \"base/a.h\"\n#include \"graph/b.h\"\n", NULL);
  assert_complaint(state, "bench/a.c", "#include \"published/b.h\"\n", NULL);
  assert_complaint(
      state, "src/graph/a.c", "#include \"published/b.h\"\n",
      "src/graph/a.c:1: includes are written \"room/file.h\", with a room of rooms.txt");
  assert_complaint(state, "src/graph/a.c", "#include <stdio.h>\n#include \"shard/b.h\"\n",
                   "src/graph/a.c:2: includes a room below its own (src/rooms.txt has the order)");
  assert_complaint(
      state, "src/graph/a.c", "\n#include \"b.h\"\n",
      "src/graph/a.c:2: includes are written \"room/file.h\", with a room of rooms.txt");
  assert_complaint(
      state, "src/device/cpu/a.c", "#include \"train/b.h\"\n",
      "src/device/cpu/a.c:1: includes a room below its own (src/rooms.txt has the order)");
  assert_complaint(state, "src/cellar/a.c", "int a;\n",
                   "src/cellar/a.c:1: its folder is not in src/rooms.txt");
  assert_complaint(state, "include/lockstep/a.h", "/* A. */\n#include \"base/arena.h\"\n",
                   "include/lockstep/a.h:2: a public header includes only lockstep/ headers");
  assert_complaint(state, "src/watch/a.c", "#include \"ir/b.h\"\n#include \"lower/b.h\"\n",
                   "src/watch/a.c:2: reads programs, and includes what makes them: expected ir");
  assert_complaint(state, "src/watch/a_test.c", "#include \"lower/b.h\"\n", NULL);
  assert_complaint(state, "src/train/a.c", "#include \"run/rank_memory.h\"\n",
                   "src/train/a.c:1: follows addresses in a rank's memory: use ls_rank_get, _put");
  assert_complaint(state, "src/run/a.c", "#include \"run/rank_memory.h\"\n", NULL);
  assert_complaint(state, "src/train/a.c", "#include \"device/cpu/cpu.h\"\n",
                   "src/train/a.c:1: knows one kind of device: ask device/device.h");
  assert_complaint(state, "tests/a_test.c", "#include \"run/rank_memory.h\"\n",
                   "tests/a_test.c:1: follows addresses in a rank's memory: use ls_rank_get, _put");
  assert_complaint(state, "src/run/a.c", "#include \"device/cuda/cuda.h\"\n",
                   "src/run/a.c:1: knows one kind of device: ask device/device.h");
  assert_complaint(state, "src/run/a_test.c", "#include \"device/cpu/cpu.h\"\n", NULL);
  assert_complaint(state, "src/data/a.c", "int a;\n#include <omp.h>\n",
                   "src/data/a.c:2: has threads of its own: ask ls_host_share");
  assert_complaint(state, "src/data/a.c", "#pragma omp parallel for\n",
                   "src/data/a.c:1: has threads of its own: ask ls_host_share");
  assert_complaint(state, "src/verify/a.c", "int a = ls_world_create_mpi(b);\n",
                   "src/verify/a.c:1: chooses an engine: ask ls_world_start");
  assert_complaint(state, "tests/a_test.c", "#include \"train/b.h\"\n", NULL);
  assert_complaint(state, "tests/a_test.c", "#include \"support/b.h\"\n", NULL);
}

/* `count` lines between `before` and `after`. */
static char *lines(tidy *state, const char *before, const char *line, int count,
                   const char *after) {
  char *text = ls_arena_strdup(state->arena, before);
  for (int i = 0; i < count; i++) text = ls_arena_printf(state->arena, "%s%s\n", text, line);
  return ls_arena_printf(state->arena, "%s%s", text, after);
}

static void sizes_are_held(void **given) {
  tidy *state = *given;
  const char *path = "src/base/a.c";
  assert_complaint(state, path, lines(state, "", "int a;", 800, ""), NULL);
  assert_complaint(state, path, lines(state, "", "int a;", 801, ""),
                   "src/base/a.c:801: longer than 800 lines");
  assert_complaint(state, path, lines(state, "int\nf(void) {\n", "  a();", 67, "}\n"), NULL);
  assert_complaint(state, path, lines(state, "\nint\nf(void) {\n", "  a(); { }", 68, "}\n"),
                   "src/base/a.c:2: function longer than 70 lines");
  assert_complaint(state, path, lines(state, "int a[] = {\n", "  1,", 100, "};\n"), NULL);
  assert_complaint(state, "include/lockstep/a.h",
                   lines(state, "/* A. */\nextern \"C\" {\n", "int a;", 100, "}\n"), NULL);
  assert_complaint(state, path,
                   lines(state, "extern \"C\" {\nint f(void) {\n", "  a();", 70, "}\n}\n"),
                   "src/base/a.c:2: function longer than 70 lines");
  char wide[110];
  memset(wide, 'x', 100);
  memcpy(wide + 100, "\n", 2);
  assert_complaint(state, path, wide, NULL);
  memcpy(wide + 100, "x\n", 3);
  assert_complaint(state, path, wide, "src/base/a.c:1: longer than 100 columns");
}

static void calls_are_held(void **given) {
  tidy *state = *given;
  assert_complaint(state, "src/graph/a.c", "int f(void) {\n  exit (1);\n}\n",
                   "src/graph/a.c:2: 'exit' is not used here");
  assert_complaint(state, "src/graph/a.c", "void f(void) {\n  fputs(\"a\", stdout);\n}\n",
                   "src/graph/a.c:2: 'stdout' is not used here");
  assert_complaint(state, "src/graph/a.c", "void f(void) {\n  p = malloc(2);\n}\n",
                   "src/graph/a.c:2: 'malloc' is not used here");
  assert_complaint(state, "src/base/a.c", "void f(void) {\n  p = malloc(2);\n}\n", NULL);
  assert_complaint(state, "src/cli/a.c", "void f(void) {\n  printf(a);\n}\n", NULL);
  assert_complaint(state, "src/graph/a_test.c", "void f(void) {\n  printf(a);\n}\n", NULL);
  assert_complaint(state, "src/graph/a_test.c", "void f(void) {\n  strcpy(a, b);\n}\n",
                   "src/graph/a_test.c:2: 'strcpy' is not used here");
  assert_complaint(
      state, "src/graph/a.c",
      "/* exit(1) */ // printf(\n#define F printf(a)\nint a = world->exit(1);\n"
      "const char *b = \"\\\"exit(1)\", c = '\"';\nint snprintf(void), do_exit(void);\n",
      NULL);
}

static void seeds_are_held(void **given) {
  tidy *state = *given;
  assert_complaint(state, "src/graph/a_test.c",
                   "int main(void) {\n  seed = (uint64_t)"
                   "time(NULL);\n}\n",
                   "src/graph/a_test.c:2: a test takes its seed from support/test_seed.h");
  assert_complaint(state, "tests/a_test.c",
                   "int main(void) {\n  given = getenv(\"LS_"
                   "SEED\");\n}\n",
                   "tests/a_test.c:2: a test takes its seed from support/test_seed.h");
  assert_complaint(state, "tests/a_test.c",
                   "int main(void) {\n  seed = test_"
                   "seed(1);\n}\n",
                   NULL);
}

static void comments_are_held(void **given) {
  tidy *state = *given;
  const char *path = "include/lockstep/a.h";
  assert_complaint(state, path,
                   "/* A. */\n\n/* Both add. */\nint f(int a,\n      int b);\nint g(void);\n",
                   NULL);
  assert_complaint(state, path, "/* A. */\n\n/* Adds. */\nint f(void);\n\nint g(void);\n",
                   "include/lockstep/a.h:6: a public function without comment");
  assert_complaint(
      state, path, "int a;\n",
      "include/lockstep/a.h:1: a header opens with a comment that says what it is for");
  assert_complaint(state, "src/base/a.c",
                   "int a;\n/* TO"
                   "DO: more */\n",
                   "src/base/a.c:2: work left open: finish it or refuse it at run time");
}

static void tests_are_asked_for(void **given) {
  tidy *state = *given;
  static const char *const files[][2] = {
      {"src/base/arena_test.c", "void f(void) { ls_new(); /* ls_old() */ }\n"},
      {"src/base/arena.c", "int\nls_new(void) {\n  return ls_inner() + ls_table[0];\n}\n"},
      {"src/base/arena_inner.c", "int ls_inner(void) {\n  return 1;\n}\n"},
      {"src/base/arena_table.c", "const int ls_table[] = {1, 2};\n"},
      {"src/device/reference/add.c", "ls_status LS_REFERENCE(ADD)(int a) {\n}\n"},
      {"tests/op_test.c", "int op = LS_OP_ADD;\n"},
      {"src/cli/show_command.c", "int ls_command_show(void) {\n}\n"},
      {"src/cli/main.c", "int main(void) {\n  return ls_command_show();\n}\n"}};
  sources all = {0};
  for (size_t f = 0; f < sizeof files / sizeof *files; f++)
    add_source(state, &all, files[f][0], files[f][1]);
  check_tested(state, &all);
  assert_int_equal(state->complaints.count, 0);
  static const char *const untested[][2] = {
      {"src/base/arena_old.c", "int ls_old(void) {\n}\n"},            /* named in a comment alone */
      {"src/base/inner.c", "static int ls_new(void) {\n}\n"},         /* of its own */
      {"src/cli/arena.c", "int ls_far(void) {\n}\n"},                 /* named by nothing */
      {"src/graph/other.c", "int other;\nint ls_other(void) {\n}\n"}, /* by another room alone */
      {"src/base/caller.c", "void ls_caller(void) {\n  ls_other();\n}\n"}};
  const int few = all.count;
  for (size_t f = 0; f < sizeof untested / sizeof *untested; f++) {
    all.count = few;
    state->complaints.count = 0;
    add_source(state, &all, "src/base/arena_more.c", "int ls_inner(void) {\n  ls_other();\n}\n");
    add_source(state, &all, untested[f][0], untested[f][1]);
    check_tested(state, &all);
    assert_int_equal(state->complaints.count, 1);
    assert_true(starts_with(state->complaints.items[0], untested[f][0]));
  }
}

/* What is looked for and linked is also used. */
static void no_dependency_is_idle(void **given) {
  tidy *state = *given;
  ls_error error = {0};
  static const char mark[] = "LS_HAVE_";
  char *cmake, **paths, *text;
  size_t bytes;
  int count;
  assert_int_equal(ls_file_read(state->arena, "cmake/dependencies.cmake", &cmake, &bytes, &error),
                   LS_OK);
  assert_int_equal(ls_file_glob(state->arena, "src/*/*.c", &paths, &count, &error), LS_OK);
  for (char *at = cmake; (at = strstr(at, mark));) {
    char *end = at + strlen(mark);
    while (is_word(*end)) end++;
    const char *name = ls_arena_printf(state->arena, "%.*s", (int)(end - at), at);
    bool used = false;
    for (int i = 0; i < count && !used; i++) {
      if (is_test(paths[i])) continue;
      assert_int_equal(ls_file_read(state->arena, paths[i], &text, &bytes, &error), LS_OK);
      used = strstr(text, name) != NULL;
    }
    if (!used) fail_msg("cmake/dependencies.cmake: %s: no source asks for it", name);
    at = end;
  }
}

static void the_tree_is_tidy(void **given) {
  tidy *state = *given;
  static const char *const patterns[] = {"src/**/*.[ch]", "include/**/*.h", "tests/**/*.[ch]",
                                         "bench/**/*.[ch]", "examples/**/*.[ch]"};
  ls_error error = {0};
  texts all = {0};
  LS_LIST(char *) contents = {0};
  sources compiled = {0};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    char **paths;
    int count;
    if (ls_file_glob(state->arena, patterns[i], &paths, &count, &error) != LS_OK) continue;
    for (int k = 0; k < count; k++) {
      char *text;
      size_t bytes;
      assert_int_equal(ls_file_read(state->arena, paths[k], &text, &bytes, &error), LS_OK);
      *LS_APPEND(state->arena, &all) = paths[k];
      *LS_APPEND(state->arena, &contents) = text;
      add_source(state, &compiled, paths[k], text);
    }
  }
  assert_true(all.count > 10);
  for (int i = 0; i < all.count; i++) check_file(state, all.items[i], contents.items[i]);
  check_tested(state, &compiled);
  for (int i = 0; i < state->complaints.count; i++) {
    print_error("%s\n", state->complaints.items[i]);
  }
  if (state->complaints.count) {
    fail_msg("%d complaints in %d files", state->complaints.count, all.count);
  }
}

#define TIDY_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TIDY_TEST(order_of_rooms_is_held), TIDY_TEST(sizes_are_held),
      TIDY_TEST(calls_are_held),         TIDY_TEST(comments_are_held),
      TIDY_TEST(tests_are_asked_for),    TIDY_TEST(no_dependency_is_idle),
      TIDY_TEST(seeds_are_held),         TIDY_TEST(the_tree_is_tidy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
