/* Examples in headers stay true: each call in the comments of a header names a function or macro
 * that some header declares, with as many arguments as it takes; and the examples of the public
 * headers compile as they stand. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"

typedef struct call {
  char *name;
  int arguments; /* -1: any number */
} call;

typedef LS_LIST(call) calls;

typedef struct header {
  char *path, *text;
} header;

static ls_arena *arena;
static LS_LIST(header) headers;
static calls declared;
static int wrong;

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

/* The ')' of the '(' at `open`; NULL: the text ends before. Counts what commas of its own level
 * part. */
static const char *closing(const char *open, int *arguments) {
  int depth = 0;
  bool any = false;
  *arguments = 1;
  for (const char *at = open; *at; at++) {
    if (*at == '"') {
      for (at++; *at && *at != '"'; at++) at += *at == '\\' && at[1];
      if (!*at) return NULL;
    }
    if (strchr("([{", *at)) depth++;
    if (strchr(")]}", *at) && --depth == 0) {
      if (!any || !strncmp(open, "(void)", 6)) *arguments = 0;
      return at;
    }
    if (*at == ',' && depth == 1) ++*arguments;
    if (at > open && !isspace((unsigned char)*at) && *at != '*') any = true;
  }
  return NULL;
}

static bool is_name(const char *at) {
  return (!strncmp(at, "ls_", 3) || !strncmp(at, "LS_", 3));
}

static call *find(const calls *list, const char *name) {
  for (int i = 0; i < list->count; i++)
    if (!strcmp(list->items[i].name, name)) return &list->items[i];
  return NULL;
}

/* Every `ls_name(` of a text with its arguments. */
static void list_calls(const char *text, calls *list) {
  for (const char *at = text; *at;) {
    const char *end = at;
    while (is_word(*end)) end++;
    if (end == at) {
      at++;
      continue;
    }
    int arguments;
    if (is_name(at) && *end == '(' && closing(end, &arguments))
      *LS_APPEND(arena, list) =
          (call){ls_arena_printf(arena, "%.*s", (int)(end - at), at), arguments};
    at = end;
  }
}

/* Comments alone, without the stars that begin their lines, or all but comments. */
static char *part_of(const char *text, bool comments) {
  char *part = ls_arena_strdup(arena, text);
  bool inside = false;
  for (char *at = part; *at; at++) {
    if (!inside && at[0] == '/' && at[1] == '*') inside = true;
    const bool last = inside && at[0] == '*' && at[1] == '/';
    const bool star = inside && *at == '*' && !last;
    const bool begins = star && (at == part || at[-1] == '\n' ||
                                 (at[-1] == ' ' && at - part > 1 && at[-2] == '\n'));
    if ((inside != comments || begins || last) && *at != '\n') *at = ' ';
    if (last) {
      inside = false;
      *++at = ' ';
    }
  }
  return part;
}

static void read_header(const char *path) {
  ls_error error = {0};
  char *text;
  size_t bytes;
  if (ls_file_read(arena, path, &text, &bytes, &error) != LS_OK) fail_msg("%s", error.text);
  *LS_APPEND(arena, &headers) = (header){ls_arena_strdup(arena, path), text};
  calls found = {0};
  list_calls(part_of(text, false), &found);
  for (int i = 0; i < found.count; i++) {
    const call *known = find(&declared, found.items[i].name);
    if (!known) *LS_APPEND(arena, &declared) = found.items[i];
  }
}

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  FILE *list = popen("find include src tests/support -name '*.h' | LC_ALL=C sort", "r");
  assert_non_null(list);
  char line[512];
  while (fgets(line, sizeof line, list)) {
    line[strcspn(line, "\n")] = 0;
    read_header(line);
  }
  return pclose(list);
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

/* What is variadic, and what a comment writes with "..". */
static bool varies(const char *name) {
  static const char *const any[] = {"ls_fail", "LS_TRY", "ls_warn", "ls_arena_printf"};
  for (size_t i = 0; i < sizeof any / sizeof *any; i++)
    if (!strcmp(any[i], name)) return true;
  return false;
}

static void check_comments(const char *path, const char *text) {
  calls used = {0};
  list_calls(part_of(text, true), &used);
  for (int i = 0; i < used.count; i++) {
    const call *known = find(&declared, used.items[i].name);
    const char *problem = NULL;
    if (!known) {
      problem = "which no header declares";
    } else if (known->arguments != used.items[i].arguments && !varies(known->name)) {
      problem = ls_arena_printf(arena, "with %d arguments, and it takes %d",
                                used.items[i].arguments, known->arguments);
    }
    if (!problem) continue;
    printf("%s: an example calls %s, %s\n", path, used.items[i].name, problem);
    wrong++;
  }
}

static void a_wrong_example_is_seen(void **state) {
  (void)state;
  wrong = 0;
  check_comments("a.h", "/* Use:\n *   ls_arena_strdup(arena);\n *   ls_no_such_thing(1);\n */\n");
  assert_int_equal(wrong, 2);
  wrong = 0;
  check_comments("a.h",
                 "/* Use:\n *   ls_arena_strdup(arena, f(1, 2));\n */\nint ls_other(int);\n");
  assert_int_equal(wrong, 0);
}

static void examples_call_what_is_declared(void **state) {
  (void)state;
  wrong = 0;
  for (int i = 0; i < headers.count; i++)
    check_comments(headers.items[i].path, headers.items[i].text);
  printf("%d headers\n", headers.count);
  assert_int_equal(wrong, 0);
}

/* The indented lines of the first comment, as the body of a function. */
static void write_example(FILE *file, const char *path, const char *text) {
  fprintf(file, "#include <stdio.h>\n#include \"%s\"\nvoid example(void);\nvoid example(void) {\n",
          path + strlen("include/"));
  const char *end = strstr(text, "*/");
  for (const char *line = text; line < end; line = strchr(line, '\n') + 1)
    if (!strncmp(line, " *   ", 5)) fprintf(file, "%.*s", (int)(strcspn(line, "\n") - 2), line + 3);
  fprintf(file, "}\n");
}

static int compile_example(const char *path, const char *text) {
  char name[] = "/tmp/lockstep_example_XXXXXX";
  const int handle = mkstemp(name);
  assert_true(handle >= 0);
  FILE *file = fdopen(handle, "w");
  write_example(file, path, text);
  fclose(file);
  const char *compiler = getenv("CC");
  const int status = system(
      ls_arena_printf(arena, "%s -std=c17 -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c %s",
                      compiler ? compiler : "cc", name));
  unlink(name);
  return status;
}

static void public_examples_compile(void **state) {
  (void)state;
  int compiled = 0;
  for (int i = 0; i < headers.count; i++) {
    if (strncmp(headers.items[i].path, "include/", 8)) continue;
    if (compile_example(headers.items[i].path, headers.items[i].text))
      fail_msg("%s: its example does not compile", headers.items[i].path);
    compiled++;
  }
  assert_true(compiled > 0);
  assert_int_not_equal(
      compile_example("include/lockstep/lockstep.h", "/*\n *   ls_run_close(1, 2);\n */\n"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_wrong_example_is_seen),
      cmocka_unit_test(examples_call_what_is_declared),
      cmocka_unit_test(public_examples_compile),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
