/* cat, rm, mv, mkdir, undelete and log: names in an archive, without a mount of it. */
#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Does it for each of the paths behind the archive; what fails does not keep others from it. */
static int for_each (const Verb *verb, unsigned flags, const char *at, char **argv, int n_paths,
                     bool (*each) (void *user, Ecfs *ecfs, const char *path, GError **error), void *user)
{
    GError *error = NULL;
    int status = TOOL_DONE;
    g_autoptr (Ecfs) ecfs = at == NULL ? ecfs_open (argv[1], flags, &error) : ecfs_open_at (argv[1], at, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, at == NULL ? TOOL_FAILED : tool_status (error->code));
    for (int i = 0; i < n_paths; i++) {
        if (each (user, ecfs, argv[2 + i], &error))
            continue;
        status = tool_fail (verb->name, error, TOOL_FAILED);
        error = NULL;
    }
    return status;
}

static bool cat (void *user, Ecfs *ecfs, const char *path, GError **error)
{
    (void) user; /* it has no options */
    return ecfs_cat (ecfs, path, STDOUT_FILENO, error);
}

int verb_cat (const Verb *verb, int argc, char **argv)
{
    g_autofree char *at = NULL;
    const GOptionEntry options[] = {TOOL_AT (&at), G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, G_MAXINT);
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 1, 0);
    return for_each (verb, 0, at, words, argc - 2, cat, NULL);
}

typedef struct Removal {
    gboolean recursive, force;
} Removal;

static bool remove_path (void *user, Ecfs *ecfs, const char *path, GError **error)
{
    const Removal *self = user;
    GError *reason = NULL;
    if (ecfs_remove (ecfs, path, self->recursive, &reason))
        return true;
    if (self->force && g_error_matches (reason, ECFS_ERROR, ENOENT)) {
        g_error_free (reason);
        return true;
    }
    if (g_error_matches (reason, ECFS_ERROR, ENOTEMPTY))
        g_prefix_error (&reason, "-r removes a directory with everything in it: ");
    g_propagate_error (error, reason);
    return false;
}

int verb_rm (const Verb *verb, int argc, char **argv)
{
    Removal removal = {0};
    const GOptionEntry options[] = {
        {"recursive", 'r', 0, G_OPTION_ARG_NONE, &removal.recursive, "Remove directories with everything in them",
         NULL},
        {"force", 'f', 0, G_OPTION_ARG_NONE, &removal.force, "Ignore what does not exist", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 2, G_MAXINT);
    return for_each (verb, ECFS_OPEN_WRITE, NULL, argv, argc - 2, remove_path, &removal);
}

typedef struct Making {
    gboolean parents;
    uint32_t mode;
} Making;

static bool make (void *user, Ecfs *ecfs, const char *path, GError **error)
{
    const Making *self = user;
    return ecfs_make_directory (ecfs, path, self->mode, self->parents, error);
}

int verb_mkdir (const Verb *verb, int argc, char **argv)
{
    mode_t mask = umask (0);
    Making making = {.mode = 0777 & ~mask};
    umask (mask);
    const GOptionEntry options[] = {{"parents", 'p', 0, G_OPTION_ARG_NONE, &making.parents,
                                     "Also make the directories on the way, and ignore those that exist", NULL},
                                    G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 2, G_MAXINT);
    return for_each (verb, ECFS_OPEN_WRITE, NULL, argv, argc - 2, make, &making);
}

typedef struct Move {
    const char *to;
    gboolean keep;
} Move;

static bool move (void *user, Ecfs *ecfs, const char *path, GError **error)
{
    const Move *self = user;
    return ecfs_move (ecfs, path, self->to, self->keep, error);
}

int verb_mv (const Verb *verb, int argc, char **argv)
{
    Move target = {0};
    const GOptionEntry options[] = {
        {"no-clobber", 'n', 0, G_OPTION_ARG_NONE, &target.keep, "Replace nothing: fail if the name is taken", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 3, G_MAXINT);
    /* Several go into a directory. */
    g_autofree char *into = argc > 4 ? g_strconcat (argv[argc - 1], "/", NULL) : NULL;
    target.to = into != NULL ? into : argv[argc - 1];
    return for_each (verb, ECFS_OPEN_WRITE, NULL, argv, argc - 3, move, &target);
}

typedef struct Undeletion {
    const Verb *verb;
    Ecfs *ecfs;
    const char *at;
    gboolean keep, beside_prune;
    uint64_t n_back, n_same;
} Undeletion;

static int undelete (Undeletion *self, const char *const *paths)
{
    GError *error = NULL;
    ToolTransfer transfer;
    const unsigned flags =
        (self->keep ? ECFS_UNDELETE_KEEP : 0u) | (self->beside_prune ? ECFS_UNDELETE_BESIDE_PRUNE : 0u);
    tool_transfer_begin (&transfer, self->verb->name);
    transfer.resume = tool_command (NULL);
    (void) ecfs_undelete (self->ecfs, paths, self->at, flags, &transfer.transfer, &error); /* the error says it */
    bool invalid = error != NULL && error->code == EINVAL;
    int result = tool_transfer_end (&transfer, error);
    self->n_back += transfer.last.n_done - transfer.last.n_current;
    self->n_same += transfer.last.n_current;
    return invalid ? TOOL_USAGE : result;
}

int verb_undelete (const Verb *verb, int argc, char **argv)
{
    g_autofree char *at = NULL;
    Undeletion self = {.verb = verb};
    const GOptionEntry options[] = {
        TOOL_AT (&at),
        {"keep", 'k', 0, G_OPTION_ARG_NONE, &self.keep, "Leave what is there under the same name as it is now", NULL},
        {"beside-prune", 0, 0, G_OPTION_ARG_NONE, &self.beside_prune,
         "Although an endpoint has a note that another machine prunes it", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, G_MAXINT);
    GError *error = NULL;
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 1, 0);
    g_autoptr (Ecfs) ecfs = ecfs_open (words[1], ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    self.ecfs = ecfs;
    self.at = at;
    int status = at == NULL ? TOOL_DONE : undelete (&self, (const char *const *) words + 2);
    for (int i = 2; at == NULL && i < argc; i++) { /* each has a moment of its own */
        const char *const path[] = {words[i], NULL};
        int result = undelete (&self, path);
        status = MAX (status, result);
    }
    printf ("%" PRIu64 " files brought back, %" PRIu64 " were as they had been\n", self.n_back, self.n_same);
    return status;
}

static void print_version (JsonObject *entry, const char *change)
{
    /* Rounded up, so that it shows what it is about where it is given to --at. */
    const int64_t us = (tool_number (entry, "time_ns") + 999) / 1000;
    g_autoptr (GDateTime) second = g_date_time_new_from_unix_local (us / 1000000);
    g_autofree char *time = second == NULL ? g_strdup ("?") : g_date_time_format (second, "%F %T");
    printf ("%s.%06d  %-8s", time, (int) (us % 1000000), change);
    if (json_object_has_member (entry, "mode"))
        printf ("  %06o %5" PRIi64 " %5" PRIi64 " %12" PRIi64 " bytes", (unsigned) tool_number (entry, "mode"),
                tool_number (entry, "uid"), tool_number (entry, "gid"), tool_number (entry, "size"));
    putchar ('\n');
}

int verb_log (const Verb *verb, int argc, char **argv)
{
    gboolean json = FALSE;
    const GOptionEntry options[] = {{"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON array", NULL},
                                    G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, 2);
    GError *error = NULL;
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 1, 0);
    g_autofree char *text = ecfs_log (words[1], words[2], &error);
    if (text == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (json) {
        puts (text);
        return TOOL_DONE;
    }
    g_autoptr (JsonArray) entries = tool_json_array (text);
    for (guint i = 0; i < json_array_get_length (entries); i++) {
        JsonObject *entry = json_array_get_object_element (entries, i);
        print_version (entry, tool_text (entry, "change"));
    }
    if (json_array_get_length (entries) > 0)
        return TOOL_DONE;
    tool_say (verb->name, "%s: nothing is kept of it", words[2]);
    return TOOL_FAILED;
}
