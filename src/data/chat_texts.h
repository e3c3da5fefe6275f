/* Whether the texts of a run are chats, which the first of them says.
 *
 *   bool chats = ls_chat_texts_are(run);
 *
 * A file of JSON whose first object has the keys of a chat (chat/chat_example.h), and no string
 * under data.text_key. Thread-safe: no state. */
#ifndef LS_DATA_CHAT_TEXTS_H
#define LS_DATA_CHAT_TEXTS_H

#include "text/run_file.h"

/* False also where there is no text yet, or it cannot be read: that is said by who opens it. */
bool ls_chat_texts_are(const ls_run_file *run);

/* What data.documents is, where the run says auto: masked for chats, else a stream. */
void ls_chat_texts_resolve(ls_run_file *run);

#endif
