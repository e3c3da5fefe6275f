#include "tokenizer/added_tokens.h"

#include "tokenizer/unicode.h"

/* A node of the trie of all contents: its children are a list, the first letters a table. */
typedef struct node {
  unsigned char letter;
  int token;          /* -1: none ends here */
  int child, sibling; /* 0: none */
} node;

struct ls_added_tokens {
  ls_arena *arena;
  LS_LIST(node) nodes;
  LS_LIST(ls_added_token) tokens;
  int first[256]; /* nodes of first letters, 0: none */
};

ls_added_tokens *ls_added_tokens_create(ls_arena *arena) {
  ls_added_tokens *made = LS_NEW(arena, ls_added_tokens);
  made->arena = arena;
  LS_APPEND(arena, &made->nodes)->token = -1; /* node 0 stands for none */
  return made;
}

static int add_node(ls_added_tokens *self, unsigned char letter) {
  *LS_APPEND(self->arena, &self->nodes) = (node){.letter = letter, .token = -1};
  return self->nodes.count - 1;
}

static int find_child(const ls_added_tokens *self, int at, unsigned char letter) {
  int child = self->nodes.items[at].child;
  while (child && self->nodes.items[child].letter != letter) {
    child = self->nodes.items[child].sibling;
  }
  return child;
}

void ls_added_tokens_add(ls_added_tokens *self, const ls_added_token *token) {
  const unsigned char *content = (const unsigned char *)token->content.text;
  if (!token->content.bytes) return;
  if (!self->first[content[0]]) self->first[content[0]] = add_node(self, content[0]);
  int at = self->first[content[0]];
  for (size_t i = 1; i < token->content.bytes; i++) {
    int child = find_child(self, at, content[i]);
    if (!child) {
      child = add_node(self, content[i]);
      self->nodes.items[child].sibling = self->nodes.items[at].child;
      self->nodes.items[at].child = child;
    }
    at = child;
  }
  if (self->nodes.items[at].token >= 0) return;
  self->nodes.items[at].token = self->tokens.count;
  *LS_APPEND(self->arena, &self->tokens) = *token;
}

/* The longest token at the beginning of a text, -1 for none; *bytes of it. */
static int longest(const ls_added_tokens *self, ls_span text, size_t *bytes) {
  int token = -1;
  int at = text.bytes ? self->first[(unsigned char)text.text[0]] : 0;
  for (size_t i = 1; at; i++) {
    if (self->nodes.items[at].token >= 0) {
      token = self->nodes.items[at].token;
      *bytes = i;
    }
    if (i == text.bytes) break;
    at = find_child(self, at, (unsigned char)text.text[i]);
  }
  return token;
}

size_t ls_added_tokens_prefix(const ls_added_tokens *self, ls_span text, int32_t *id) {
  size_t bytes = 0;
  const int token = self ? longest(self, text, &bytes) : -1;
  if (token < 0) return 0;
  *id = self->tokens.items[token].id;
  return bytes;
}

static size_t previous(const char *text, size_t at) {
  do {
    at--;
  } while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80);
  return at;
}

static bool stands_alone(ls_span text, size_t begin, size_t end) {
  const char *before = text.text + (begin ? previous(text.text, begin) : 0);
  const char *behind = text.text + end;
  if (begin && ls_unicode_is_word(ls_unicode_next(&before))) return false;
  return end == text.bytes || !ls_unicode_is_word(ls_unicode_next(&behind));
}

/* Widens a match over the white space that it takes; not over what was given out already. */
static void widen(const ls_added_token *token, ls_span text, ls_added_cursor *cursor) {
  while (token->lstrip && cursor->begin > cursor->done) {
    const size_t before = previous(text.text, cursor->begin);
    const char *at = text.text + before;
    if (before < cursor->done || !ls_unicode_is_space(ls_unicode_next(&at))) break;
    cursor->begin = before;
  }
  while (token->rstrip && cursor->end < text.bytes) {
    const char *at = text.text + cursor->end;
    if (!ls_unicode_is_space(ls_unicode_next(&at))) break;
    cursor->end = (size_t)(at - text.text);
  }
}

/* The next match at or behind cursor->searched. */
static bool find(const ls_added_tokens *self, ls_span text, ls_added_cursor *cursor) {
  while (cursor->searched < text.bytes) {
    const size_t at = cursor->searched;
    size_t bytes = 0;
    if (!self->first[(unsigned char)text.text[at]]) {
      cursor->searched++;
      continue;
    }
    const int found = longest(self, (ls_span){text.text + at, text.bytes - at}, &bytes);
    if (found < 0) {
      cursor->searched++;
      continue;
    }
    const ls_added_token *token = &self->tokens.items[found];
    cursor->searched = at + bytes;
    if (token->single_word && !stands_alone(text, at, at + bytes)) continue;
    cursor->begin = at;
    cursor->end = at + bytes;
    cursor->id = token->id;
    widen(token, text, cursor);
    return true;
  }
  return false;
}

bool ls_added_tokens_next(const ls_added_tokens *self, ls_span text, ls_added_cursor *cursor,
                          ls_added_segment *segment) {
  if (!cursor->found && self) cursor->found = find(self, text, cursor);
  if (cursor->found && cursor->begin <= cursor->done) {
    *segment =
        (ls_added_segment){{text.text + cursor->begin, cursor->end - cursor->begin}, cursor->id};
    cursor->done = cursor->end;
    cursor->found = false;
    return true;
  }
  const size_t end = cursor->found ? cursor->begin : text.bytes;
  if (cursor->done >= end) return false;
  *segment = (ls_added_segment){{text.text + cursor->done, end - cursor->done}, -1};
  cursor->done = end;
  return true;
}
