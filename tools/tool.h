/*
 * What the verbs of `ecfs` share: the table of verbs, options, messages, figures for people, progress on a terminal.
 *
 * Exit status: 0 done, 1 failed, 2 wrong usage. Facts go to stdout, messages to stderr as "ecfs VERB: text".
 */
#ifndef ECFS_TOOL_H
#define ECFS_TOOL_H

#include "ecfs/ecfs.h"
#include "progress.h"

#include <errno.h>
#include <json-glib/json-glib.h>

enum { TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 };

typedef struct Verb {
    const char *name;
    const char *arguments; /* behind the options, for the usage line */
    const char *summary;   /* one line */
    int (*run) (const struct Verb *verb, int argc, char **argv);
} Verb;

int verb_init (const Verb *verb, int argc, char **argv);
int verb_mount (const Verb *verb, int argc, char **argv);
int verb_umount (const Verb *verb, int argc, char **argv);
int verb_put (const Verb *verb, int argc, char **argv);
int verb_get (const Verb *verb, int argc, char **argv);
int verb_cat (const Verb *verb, int argc, char **argv);
int verb_warm (const Verb *verb, int argc, char **argv);
int verb_catalog (const Verb *verb, int argc, char **argv);
int verb_cache (const Verb *verb, int argc, char **argv);
int verb_rm (const Verb *verb, int argc, char **argv);
int verb_mv (const Verb *verb, int argc, char **argv);
int verb_mkdir (const Verb *verb, int argc, char **argv);
int verb_history (const Verb *verb, int argc, char **argv);
int verb_mark (const Verb *verb, int argc, char **argv);
int verb_log (const Verb *verb, int argc, char **argv);
int verb_undelete (const Verb *verb, int argc, char **argv);
int verb_destroy (const Verb *verb, int argc, char **argv);
int verb_ls (const Verb *verb, int argc, char **argv);
int verb_info (const Verb *verb, int argc, char **argv);
int verb_status (const Verb *verb, int argc, char **argv);
int verb_metrics (const Verb *verb, int argc, char **argv);
int verb_report (const Verb *verb, int argc, char **argv);
int verb_top (const Verb *verb, int argc, char **argv);
int verb_wait (const Verb *verb, int argc, char **argv);
int verb_endpoint (const Verb *verb, int argc, char **argv);
/** `ecfs endpoint ACTION`, for what changes the life of an endpoint; -1: it is none of these. */
int verb_lifecycle (const char *action, int argc, char **argv);
int verb_key (const Verb *verb, int argc, char **argv);
int verb_export (const Verb *verb, int argc, char **argv);
int verb_fetch (const Verb *verb, int argc, char **argv);
int verb_swarm (const Verb *verb, int argc, char **argv);
int verb_locate (const Verb *verb, int argc, char **argv);
int verb_prune (const Verb *verb, int argc, char **argv);
int verb_recover (const Verb *verb, int argc, char **argv);
int verb_takeover (const Verb *verb, int argc, char **argv);
int verb_drill (const Verb *verb, int argc, char **argv);
int verb_policy (const Verb *verb, int argc, char **argv);
int verb_recode (const Verb *verb, int argc, char **argv);
int verb_plan (const Verb *verb, int argc, char **argv);
int verb_sim (const Verb *verb, int argc, char **argv);
int verb_tune (const Verb *verb, int argc, char **argv);
int verb_bench (const Verb *verb, int argc, char **argv);

/**
 * Parses the options of a verb off @argv and checks that @min to @max arguments are left (behind argv[0]), else says so
 * and ends the program with status 2; `--help` ends it with 0. Returns the new argc.
 */
int tool_parse (const Verb *verb, const GOptionEntry *options, int argc, char **argv, int min, int max);

/**
 * The arguments of a verb in the form ARCHIVE PATH..., to which paths in a mount are turned: `/mnt/a /mnt/b` into the
 * archive that is mounted on /mnt, `/a` and `/b`. The last @n_others are left as they are. Ends the program with
 * status 2 where that leaves less than @min paths. *argc is changed; g_strfreev ().
 */
char **tool_in_archive (const Verb *verb, int *argc, char **argv, int min, int n_others);

/** Whether the archive's key, of which @key tells, has a slot of this kind; an earlier ecfs does not tell, and then
 * `split` is taken for granted. */
bool tool_key_has (JsonObject *key, const char *kind);
/** What it takes to open the archive's key, of which @key tells, beside what endpoints have: "a code or a private key".
 * NULL: nothing, or @for_less and nothing opens it with fewer endpoints than share it. g_free () */
char *tool_key_openers (JsonObject *key, bool for_less);

/** What `ecfs status` and `ecfs history` tell people of the past. */
void tool_print_history (JsonObject *status);

/** ecfs_open () for reading; with @at, the option TOOL_AT, the archive as it was then. */
Ecfs *tool_open (const char *archive, const char *at, GError **error);
#define TOOL_AT(at)                                                                                                    \
    {                                                                                                                  \
        "at", 0, 0, G_OPTION_ARG_STRING, at, "The archive as it was then: a date, how long ago, or a mark", "TIME"     \
    }

/** The directory of the archive that @path is, or whose mount it is in; g_free (). */
char *tool_archive (const char *path);

/** The one of @candidates (NULL-terminated) that @word is most likely a slip of the hand for; NULL: none is near. */
const char *tool_nearest (const char *word, const char *const *candidates);

/** Says that @action is none of @actions (NULL-terminated), and which is like it. Returns TOOL_USAGE. */
int tool_unknown_action (const Verb *verb, const char *action, const char *const *actions);

typedef struct Action {
    const char *name;
    int (*run) (int argc, char **argv); /* argv[0] is the action */
} Action;

/** Runs that of @actions, of which a NULL is the last name, that argv[1] is, or says that it is none; the status of
 * exit. */
int tool_run_action (const Verb *verb, const Action *actions, int argc, char **argv);

/** The command that runs, as it can be typed again, once tool_parse () has seen it; with @option (may be NULL) in front
 * of its arguments. g_free () */
char *tool_command (const char *option);
/** The same with @instead for each argument that is @word. */
char *tool_command_with (const char *option, const char *word, const char *instead);

/** Prints the help of a context to stdout. */
void tool_print_help (GOptionContext *context);

/** Prints "ecfs VERB: text" for each line of the text; for a helper of mount(8), whose name has a dot, "NAME: text". */
void tool_say (const char *verb, const char *format, ...) G_GNUC_PRINTF (2, 3);

/** tool_say () of the error, which is taken. Returns @status. */
int tool_fail (const char *verb, GError *error, int status);

/** The exit status for an errno of functions that first look at their arguments: EINVAL, EDOM where a key cannot be
 * shared, or ENOTSUP where this build lacks something, is wrong usage. */
int tool_status (int code);

/** Sets @error (may be NULL) to @code, an errno, with a text; returns false. */
bool tool_error (GError **error, int code, const char *format, ...) G_GNUC_PRINTF (3, 4);

/** @text as one word of a command for a shell, quoted where that is needed; g_free (). */
char *tool_shell_word (const char *text);

/** "17 B", "1.4 KiB", "23 MiB": three digits that matter; g_free (). */
char *tool_bytes (double bytes);

/** "0.4 ms", "12 s", "3 h"; g_free (). */
char *tool_seconds (double seconds);

/** @text with what a terminal would obey made harmless when stdout is one; g_free (). */
char *tool_printable (const char *text);

/** What only an archive directory has, as the member `unstored` of its status tells it, below @title. */
void tool_print_unstored (JsonObject *unstored, const char *title);

/** Prints rows of @n_columns cells, each column as wide as its widest; the last cell of a row is not padded. */
void tool_table (const GPtrArray *cells, unsigned n_columns, const char *indent);

/** Prints JSON to stdout; @node is taken. */
void tool_print_json (JsonNode *node);

/** The object in a JSON text that libecfs made. */
JsonObject *tool_json_object (const char *text);

/** The same of an array. */
JsonArray *tool_json_array (const char *text);

/* Members of JSON objects that may be absent. */
const char *tool_text (JsonObject *object, const char *member);
int64_t tool_number (JsonObject *object, const char *member);
double tool_double (JsonObject *object, const char *member);
/** Objects and arrays in @object (may be NULL), borrowed; NULL: absent, or something else. */
JsonObject *tool_part (JsonObject *object, const char *member);
/** Millionths as "0.0231", with two digits behind the point at least; g_free (). */
char *tool_money (int64_t millionths);
/** What an endpoint has used of this month; g_free (). NULL: it has no limits and prices. */
char *tool_month_text (JsonObject *endpoint);
/** What a plan or a drill says that it costs, in a line that begins with @title; nothing without prices. */
void tool_print_cost (JsonObject *plan, const char *title);
/** What this month costs at all endpoints; likewise. */
char *tool_month_sum (JsonObject *status);
JsonArray *tool_list (JsonObject *object, const char *member);
/** 0 for NULL. */
guint tool_length (JsonArray *list);

/** Whether @endpoint, of @status, does not answer or is not believed. */
bool tool_is_away (JsonObject *status, JsonObject *endpoint);
/** Whether a mount follows with the directory of a status now; it is not asked, but leaves notes. */
bool tool_follows (JsonObject *status);
/** Whether what a status tells of reading is what a mount has met. */
bool tool_knows_reads (JsonObject *status);
/** Why files cannot be read, where some cannot. */
const char *tool_unreadable_text (JsonObject *status);

/** A table cell; takes @text. */
static inline void tool_cell (GPtrArray *cells, char *text)
{
    g_ptr_array_add (cells, text);
}

/** From here on the first SIGINT or SIGTERM only has tool_is_interrupted () return true. */
void tool_catch_interrupts (void);
bool tool_is_interrupted (void);
/** Which of them it was; 0: none. */
int tool_interrupting_signal (void);

/* Transfers: progress on a terminal, problems as messages, Ctrl-C as a request to end. */

typedef struct ToolTransfer {
    EcfsTransferOptions transfer;
    const char *verb;
    const char *things; /* that are counted: "files" */
    uint64_t bytes_all; /* that are to be done; 0: nobody knows */
    uint64_t n_all;     /* of the things; 0: as many as were found so far */
    bool all_found;     /* no more will be found */
    double wire_factor; /* bytes on the wire for one of these, about; 0: nobody knows */
    char *resume; /* the command that does the rest after an interruption; NULL: there is none; freed at the end */
    ToolProgress progress;
    bool begun;
    uint64_t wire_before; /* of whoever does it, as a mount, in the first report */
    uint64_t n_problems;
    EcfsProgress last;
} ToolTransfer;

void tool_transfer_begin (ToolTransfer *self, const char *verb);
/** Adds what is at and below @paths (NULL-terminated) to what there is to do, if progress is shown. */
void tool_transfer_expect (ToolTransfer *self, Ecfs *ecfs, const char *const *paths);
/** Shows every second what the mount of an archive has still to store, until the end, where progress is shown; NULL
 * elsewhere. Then an interrupt ends the program with @when_interrupted, a sentence that is borrowed, as is @verb. */
typedef struct ToolLeft ToolLeft;
ToolLeft *tool_left_begin (const char *verb, const char *directory, const char *when_interrupted);
/** NULL is accepted. */
void tool_left_end (ToolLeft *self);

/** Says what is left to say after ecfs_put () or ecfs_get (); @error is taken, NULL when they succeeded. */
int tool_transfer_end (ToolTransfer *self, GError *error);

/* What a verb that asks, tells and takes long has on the terminal. Its functions that take @watch are for the library's
 * callbacks, with a ToolWatch as their user. */
typedef struct ToolWatch {
    const char *verb;
    ToolProgress progress;
} ToolWatch;

/** Catches interrupts, of which the first has tick () return false. @quiet: no progress. */
void tool_watch_begin (ToolWatch *self, const char *verb, bool quiet);
/** Clears what progress has left. */
void tool_watch_end (ToolWatch *self);
void tool_watch_tell (void *watch, const char *text);
bool tool_watch_tick (void *watch, const char *phase, uint64_t n_done, uint64_t n_all);
/** Whether somebody is there who can answer. */
bool tool_watch_can_ask (void);
/** Says @text, and whether that somebody typed "yes" to @to_what. */
bool tool_watch_ask (ToolWatch *self, const char *text, const char *to_what);

#endif
