/*
 * What users keep of an archive's keys, as verbs get it: from files, credentials of a service (systemd's
 * $CREDENTIALS_DIRECTORY), a program that asks ($ECFS_ASKPASS), or the terminal. Never from arguments, nor from what is
 * in the environment itself: others see both.
 */
#ifndef ECFS_TOOL_SECRET_H
#define ECFS_TOOL_SECRET_H

#include "tool.h"

typedef struct ToolSecrets {
    char *passphrase_file, *code_file, *identity_file; /* as options have them */
    EcfsKeySecrets secrets;                            /* owned, and overwritten at the end */
} ToolSecrets;

/* The options of verbs that open keys, for a ToolSecrets *. */
#define TOOL_SECRET_OPTIONS(self)                                                                                      \
    {"passphrase-file",                                                                                                \
     0,                                                                                                                \
     0,                                                                                                                \
     G_OPTION_ARG_FILENAME,                                                                                            \
     &(self)->passphrase_file,                                                                                         \
     "A file whose first line is the passphrase of the key",                                                           \
     "FILE"},                                                                                                          \
        {"code-file", 0, 0, G_OPTION_ARG_FILENAME, &(self)->code_file, "A file with the code of the key", "FILE"},     \
    {                                                                                                                  \
        "identity", 0, 0, G_OPTION_ARG_FILENAME, &(self)->identity_file,                                               \
            "A file with a private X25519 key that the key was made for", "FILE"                                       \
    }

/** Reads what the options name, else what credentials have; @ask: what is not there may be asked for. */
bool tool_secrets_read (ToolSecrets *self, bool ask, GError **error);
void tool_secrets_clear (ToolSecrets *self);

/** A passphrase for something new, asked for twice at a terminal; for tool_forget (). */
char *tool_new_passphrase (const char *file, GError **error);
/** A new code, in the file @file where that is not NULL, which must not be there; for tool_forget (). */
char *tool_new_code (const char *file, GError **error);
/** Tells how a copy of ecfs-salvage that an endpoint has can be trusted with keys. */
void tool_print_salvage (void);
/** Prints a new code, where it is in no file. False where that fails, which is told. */
bool tool_print_code (const char *code, const char *file);
/** The text of a file with a key that is not secret, or @text itself where it names none; g_free (). */
char *tool_public_key (const char *text, GError **error);

/** What opens a published file: @word itself, or with "-" the first line of the standard input; for tool_forget (). */
char *tool_capability (const char *word, GError **error);

/** Overwrites a secret and frees it; NULL is accepted. */
void tool_forget (char *secret);

/** Keeps what is in the memory of this process out of core dumps, and away from other processes of the user. */
void tool_hide_memory (void);

#endif
