/* mount.ecfs and umount.ecfs, which mount(8) and umount(8) call: this program under other names, with their options. */
#include "mount/mount_tool.h"

#include "fs/mount.h"

#include <libmount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOUNT_DONE = 0, MOUNT_USAGE = 1, MOUNT_FAILED = 32 }; /* as in mount(8) */

/* Takes the options off; -1 when there are two words of argument left, or one for umount; else the exit status. */
static int parse (const char *name, const char *arguments, const GOptionEntry *entries, int n, int argc, char **argv)
{
    g_autoptr (GOptionContext) context = g_option_context_new (arguments);
    g_autoptr (GError) error = NULL;
    g_option_context_set_summary (context, "Called by mount(8) and umount(8); see mount.ecfs(8).");
    g_option_context_add_main_entries (context, entries, NULL);
    g_option_context_set_help_enabled (context, FALSE);
    if (argc > 1 && (strcmp (argv[1], "--help") == 0 || strcmp (argv[1], "-h") == 0)) {
        g_autofree char *help = g_option_context_get_help (context, FALSE, NULL);
        fputs (help, stdout);
        return MOUNT_DONE;
    }
    if (argc > 1 && (strcmp (argv[1], "--version") == 0 || strcmp (argv[1], "-V") == 0)) {
        printf ("%s of ecfs " ECFS_VERSION "\n", name);
        return MOUNT_DONE;
    }
    bool good = g_option_context_parse (context, &argc, &argv, &error);
    if (good && argc == n + 1)
        return -1;
    tool_say (name, "%s", good ? "wrong number of arguments" : error->message);
    tool_say (name, "usage: %s %s", name, arguments);
    return MOUNT_USAGE;
}

/* What an archive holds came over networks from others' machines: no program in it has rights, no node is a device,
 * unless root asks for that by name. */
static bool take_options (EcfsMountOptions *options, char **lists, bool sloppy, GError **error)
{
    if (!ecfs_mount_options_add (options, "nosuid,nodev", false, error))
        return false;
    for (char **list = lists; list != NULL && *list != NULL; list++)
        if (!ecfs_mount_options_add (options, *list, sloppy, error))
            return false;
    return true;
}

static bool is_for_mount (const char *word)
{
    char *found = NULL;
    bool is = mnt_optstr_get_options (word, &found, mnt_get_builtin_optmap (MNT_USERSPACE_MAP), MNT_NOMTAB) == 0 &&
              found != NULL && *found != '\0';
    free (found); /* libmount's malloc */
    return is;
}

/*
 * umount(8) looks a FUSE mount up by statfs(2), which does not tell the subtype, unless it has an entry in libmount's
 * own table. A helper named there is called for every umount; without it nothing is waited for, and that is all.
 */
static void name_umount_helper (const EcfsMountOptions *mounted, char **lists)
{
    g_autoptr (GString) words = g_string_new ("helper=ecfs");
    g_autofree char *all = lists == NULL ? NULL : g_strjoinv (",", lists);
    g_auto (GStrv) each = g_strsplit (all == NULL ? "" : all, ",", -1);
    for (char **word = each; *word != NULL; word++)
        if (is_for_mount (*word))
            g_string_append_printf (words, ",%s", *word);
    char *source = realpath (mounted->directory, NULL), *target = realpath (mounted->mountpoint, NULL);
    struct libmnt_update *update = mnt_new_update ();
    struct libmnt_fs *fs = mnt_new_fs ();
    if (source != NULL && target != NULL && update != NULL && fs != NULL && mnt_fs_set_source (fs, source) == 0 &&
        mnt_fs_set_target (fs, target) == 0 && mnt_fs_set_fstype (fs, "fuse.ecfs") == 0 &&
        mnt_fs_set_options (fs, words->str) == 0 && mnt_update_set_fs (update, 0, NULL, fs) == 0)
        (void) mnt_update_table (update, NULL); /* umount(8) does without, see above */
    mnt_unref_fs (fs);
    mnt_free_update (update);
    free (source);
    free (target);
}

int tool_mount_helper (const char *name, int argc, char **argv)
{
    gboolean sloppy = FALSE, fake = FALSE, nothing = FALSE, verbose = FALSE;
    g_auto (GStrv) lists = NULL;
    g_autofree char *namespace = NULL, *type = NULL;
    const GOptionEntry entries[] = {
        {"sloppy", 's', 0, G_OPTION_ARG_NONE, &sloppy, "Ignore unknown mount options", NULL},
        {"fake", 'f', 0, G_OPTION_ARG_NONE, &fake, "Check everything, mount nothing", NULL},
        {"no-mtab", 'n', 0, G_OPTION_ARG_NONE, &nothing, "Ignored: there is no mtab", NULL},
        {"verbose", 'v', 0, G_OPTION_ARG_NONE, &verbose, "Say what was done", NULL},
        {"options", 'o', 0, G_OPTION_ARG_FILENAME_ARRAY, &lists, "Mount options", "OPTS"},
        {"types", 't', 0, G_OPTION_ARG_STRING, &type, "Ignored: the type is known", "TYPE"},
        {"namespace", 'N', 0, G_OPTION_ARG_STRING, &namespace, "Refused: use nsenter(1)", "NS"},
        G_OPTION_ENTRY_NULL};
    int status = parse (name, "ARCHIVE MOUNTPOINT [-sfnv] [-o OPTS]", entries, 2, argc, argv);
    if (status >= 0)
        return status;
    GError *error = NULL;
    EcfsMountOptions options = {.directory = argv[1], .mountpoint = argv[2]};
    status = MOUNT_DONE;
    if (namespace != NULL)
        status = (tool_say (name, "-N is not possible: start mount(8) by nsenter(1) instead"), MOUNT_USAGE);
    else if (!take_options (&options, lists, sloppy, &error))
        status = tool_fail (name, error, MOUNT_USAGE);
    else if (fake ? !ecfs_mount_check (&options, &error) : ecfs_mount_run (&options, &error) != 0)
        status = tool_fail (name, error, MOUNT_FAILED);
    else if (!fake && !options.remount && geteuid () == 0)
        name_umount_helper (&options, lists);
    if (status == MOUNT_DONE && verbose)
        printf ("%s: %s %s on %s\n", name, argv[1], fake ? "could be mounted" : "is mounted", argv[2]);
    ecfs_mount_options_clear (&options);
    return status;
}

static bool remount_readonly (const char *mountpoint)
{
    EcfsMountOptions options = {.mountpoint = mountpoint};
    bool done = ecfs_mount_options_add (&options, "remount,ro", false, NULL) && ecfs_mount_run (&options, NULL) == 0;
    ecfs_mount_options_clear (&options);
    return done;
}

int tool_umount_helper (const char *name, int argc, char **argv)
{
    gboolean force = FALSE, lazy = FALSE, nothing = FALSE, readonly = FALSE, verbose = FALSE;
    g_autofree char *namespace = NULL, *type = NULL, *directory = NULL;
    const GOptionEntry entries[] = {
        {"force", 'f', 0, G_OPTION_ARG_NONE, &force, "Store nothing first, and let requests under way fail", NULL},
        {"lazy", 'l', 0, G_OPTION_ARG_NONE, &lazy, "Store nothing first, and let those who use the mount continue",
         NULL},
        {"no-mtab", 'n', 0, G_OPTION_ARG_NONE, &nothing, "Ignored: there is no mtab", NULL},
        {"read-only", 'r', 0, G_OPTION_ARG_NONE, &readonly, "If it cannot be unmounted, make it read-only", NULL},
        {"verbose", 'v', 0, G_OPTION_ARG_NONE, &verbose, "Say what was done", NULL},
        {"types", 't', 0, G_OPTION_ARG_STRING, &type, "Ignored: the type is known", "TYPE"},
        {"namespace", 'N', 0, G_OPTION_ARG_STRING, &namespace, "Refused: use nsenter(1)", "NS"},
        G_OPTION_ENTRY_NULL};
    int status = parse (name, "MOUNTPOINT [-flnrv]", entries, 1, argc, argv);
    if (status >= 0)
        return status;
    if (namespace != NULL) {
        tool_say (name, "-N is not possible: start umount(8) by nsenter(1) instead");
        return MOUNT_USAGE;
    }
    GError *error = NULL;
    unsigned flags = ECFS_UMOUNT_DEAD | (force ? ECFS_UMOUNT_FORCE : 0) | (lazy ? ECFS_UMOUNT_LAZY : 0);
    if (!ecfs_umount (argv[1], flags, &directory, &error)) {
        if (readonly && remount_readonly (argv[1]))
            tool_say (name, "%s is read-only now", argv[1]);
        return tool_fail (name, error, MOUNT_FAILED);
    }
    tool_tell_unfinished (name, directory);
    if (verbose)
        printf ("%s: %s is unmounted\n", name, argv[1]);
    return MOUNT_DONE;
}
