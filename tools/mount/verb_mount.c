/* mount and umount */
#include "mount/mount_tool.h"

#include "fs/mount.h"

#define FUSE_USE_VERSION 31
#include <fuse_lowlevel.h>
#include <gio/gunixmounts.h>
#include <inttypes.h>

const char *tool_fuse_version (void)
{
    return fuse_pkgversion ();
}

static void tell (void *user, const char *text)
{
    const Verb *verb = user;
    g_autofree char *printable = tool_printable (text);
    tool_say (verb->name, "%s", printable);
}

/* A directory that is not there yet is made, for reading only, from what its endpoints tell. */
static bool make_follower (const Verb *verb, const char *directory, char **endpoints, GError **error)
{
    const EcfsRecovery what = {.endpoints = (const char *const *) endpoints,
                               .read_only = true,
                               .names_only = true,
                               .tell = tell,
                               .user = (void *) verb};
    g_autofree char *config = g_build_filename (directory, "ecfs.conf", NULL);
    if (g_file_test (config, G_FILE_TEST_EXISTS))
        return true;
    g_autofree char *report = ecfs_recover (directory, &what, error);
    return report != NULL;
}

/* What goes with what; NULL: it does. */
static const char *find_conflict (const EcfsMountOptions *mount, char **endpoints)
{
    g_autofree char *config = g_build_filename (mount->directory, "ecfs.conf", NULL);
    if (endpoints != NULL && !mount->follow)
        return "--endpoint is for --follow";
    if (mount->at != NULL && mount->follow)
        return "--at shows the past, and --follow what comes: choose one";
    if (mount->follow && endpoints == NULL && !g_file_test (config, G_FILE_TEST_EXISTS))
        return "there is no such directory yet: name the archive's endpoints with --endpoint, and it is made";
    return NULL;
}

int verb_mount (const Verb *verb, int argc, char **argv)
{
    gboolean foreground = FALSE, debug = FALSE, follow = FALSE;
    g_auto (GStrv) lists = NULL, endpoints = NULL;
    g_autofree char *at = NULL;
    const GOptionEntry options[] = {
        {"foreground", 'f', 0, G_OPTION_ARG_NONE, &foreground, "Stay in the foreground, and log to stderr", NULL},
        {"options", 'o', 0, G_OPTION_ARG_FILENAME_ARRAY, &lists, "ro, allow_other, and others that mount(8) takes",
         "OPTS"},
        {"at", 0, 0, G_OPTION_ARG_STRING, &at, "The archive as it was then, for reading only", "TIME"},
        {"follow", 0, 0, G_OPTION_ARG_NONE, &follow, "Show what another machine writes, for reading only", NULL},
        {"endpoint", 'e', 0, G_OPTION_ARG_STRING_ARRAY, &endpoints,
         "With --follow: make the directory, of these endpoints, where it is not there yet", "NAME=URL"},
        {"debug", 'd', 0, G_OPTION_ARG_NONE, &debug, "Print every request; implies -f", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 2, 2);
    EcfsMountOptions mount = {
        .directory = argv[1], .mountpoint = argv[2], .foreground = foreground || debug, .debug = debug};
    GError *error = NULL;
    int status = TOOL_USAGE;
    bool good = true;
    for (char **list = lists; good && list != NULL && *list != NULL; list++)
        good = ecfs_mount_options_add (&mount, *list, false, &error);
    if (at != NULL) {
        g_free (mount.at);
        mount.at = g_steal_pointer (&at);
    }
    mount.follow = mount.follow || follow;
    const char *conflict = good ? find_conflict (&mount, endpoints) : NULL;
    if (conflict != NULL) {
        tool_say (verb->name, "%s", conflict);
        good = false;
    }
    if (good && mount.follow)
        good = make_follower (verb, argv[1], endpoints, &error);
    if (good)
        status = ecfs_mount_run (&mount, &error);
    ecfs_mount_options_clear (&mount);
    return error == NULL ? status : tool_fail (verb->name, error, status == 0 ? TOOL_FAILED : status);
}

/* umount */

/* Everything is committed by now, but an endpoint that is down may still lack its stripes, and the journal. */
void tool_tell_unfinished (const char *verb, const char *directory)
{
    g_autofree char *text = ecfs_backlog (directory, NULL);
    if (text == NULL)
        return; /* only a hint: whoever mounts it next is told */
    g_autoptr (JsonObject) backlog = tool_json_object (text);
    int64_t n_changes = tool_number (backlog, "changes_behind"), n_not_full = tool_number (backlog, "not_full");
    const char *leader = tool_text (backlog, "leader");
    const bool is_led = *leader != '\0'; /* others have it open */
    g_autofree char *who = is_led ? g_strdup_printf ("%s, which leads,", leader) : g_strdup ("the next mount");
    if (n_changes > 0)
        tool_say (verb,
                  "unmounted; %" PRIi64 " changes of names are on too few endpoints to be safe without %s: %s "
                  "stores them",
                  n_changes, is_led ? "the database" : "this machine", who);
    if (n_not_full > 0)
        tool_say (verb,
                  "unmounted; %" PRIi64
                  " objects are stored safely, but not on all of their endpoints yet: %s stores the rest",
                  n_not_full, who);
}

/* By the kernel's table: the mount itself may answer nothing. */
static bool is_read_only (const char *mountpoint)
{
    g_autofree char *path = g_canonicalize_filename (mountpoint, NULL);
    g_autoptr (GUnixMountEntry) mount = g_unix_mount_at (path, NULL);
    return mount != NULL && g_unix_mount_is_readonly (mount);
}

int verb_umount (const Verb *verb, int argc, char **argv)
{
    (void) tool_parse (verb, NULL, argc, argv, 1, 1);
    GError *error = NULL;
    g_autofree char *archive = NULL;
    g_autofree char *directory = tool_archive (argv[1]);
    ToolLeft *left =
        tool_left_begin (verb->name, directory, "the archive stays mounted, and the mount continues to store");
    bool only_read = is_read_only (argv[1]);
    bool done = ecfs_umount (argv[1], 0, &archive, &error);
    tool_left_end (left);
    if (!done)
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (!only_read) /* it had nothing to store */
        tool_tell_unfinished (verb->name, archive);
    return TOOL_DONE;
}
