/*
 * Words of others. What a server, a program or a file of unknown origin says ends up on terminals and in logs, where
 * control characters are orders and a line break begins a line that looks like ours. Such text is cleaned once, where
 * it enters a message.
 */
#ifndef ECFS_UTIL_TEXT_H
#define ECFS_UTIL_TEXT_H

#include "util/error.h"

#define ECFS_WORDS_MAX 1000 /* bytes of what another program says that are worth a message */

/**
 * A copy of @text in one line of UTF-8 that orders nothing: "?" stands for each byte that is no UTF-8, each control
 * character (C0, DEL, C1), line or paragraph separator, and character that changes the direction of text. What is
 * longer than @max bytes is cut there between characters and ends with "...". g_free ().
 */
char *ecfs_text_clean (const char *text, size_t max);

/** The same in place of the text of @error (may be NULL). */
void ecfs_text_clean_error (GError *error, size_t max);

/** Whether there is a control character (below 0x20, or 0x7f) in @text, which no name of ours has. */
bool ecfs_text_has_controls (const char *text);

/** @text as one word of a command for a shell, quoted where that is needed; g_free (). */
char *ecfs_shell_word (const char *text);

#endif
