/* mount and umount */
#include "tool.h"

#include "archive/control.h"
#include "fs/mount.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MOUNTS_SIZE (16 << 20)

/* Takes from the -o words those that are ours; the rest goes to FUSE. */
static char *take_words (char **lists, EcfsMountOptions *options)
{
    g_autoptr (GString) rest = g_string_new (NULL);
    for (char **list = lists; list != NULL && *list != NULL; list++) {
        g_auto (GStrv) words = g_strsplit (*list, ",", -1);
        for (char **word = words; *word != NULL; word++) {
            if (strcmp (*word, "ro") == 0)
                options->readonly = true;
            else if (strcmp (*word, "allow_other") == 0)
                options->allow_other = true;
            else if (**word != '\0' && strcmp (*word, "rw") != 0)
                g_string_append_printf (rest, "%s%s", rest->len > 0 ? "," : "", *word);
        }
    }
    return rest->len > 0 ? g_strdup (rest->str) : NULL;
}

int verb_mount (const Verb *verb, int argc, char **argv)
{
    gboolean foreground = FALSE, debug = FALSE;
    g_auto (GStrv) lists = NULL;
    const GOptionEntry options[] = {
        {"foreground", 'f', 0, G_OPTION_ARG_NONE, &foreground, "Stay, and log to stderr", NULL},
        {"options", 'o', 0, G_OPTION_ARG_FILENAME_ARRAY, &lists, "ro, allow_other, and what FUSE takes", "OPTS"},
        {"debug", 'd', 0, G_OPTION_ARG_NONE, &debug, "Print every request; implies -f", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 2, 2);
    EcfsMountOptions mount = {
        .directory = argv[1], .mountpoint = argv[2], .foreground = foreground || debug, .debug = debug};
    g_autofree char *rest = take_words (lists, &mount);
    mount.fuse_options = rest;
    GError *error = NULL;
    int status = ecfs_mount_run (&mount, &error);
    return error == NULL ? status : tool_fail (verb->name, error, status == 0 ? TOOL_FAILED : status);
}

/* umount */

/* "\040" and the like, as the kernel writes blanks and backslashes in mountinfo. */
static char *unescape (const char *text)
{
    GString *plain = g_string_new (NULL);
    for (const char *c = text; *c != '\0'; c++) {
        if (c[0] == '\\' && c[1] >= '0' && c[1] <= '3' && c[2] >= '0' && c[2] <= '7' && c[3] >= '0' && c[3] <= '7') {
            g_string_append_c (plain, (char) ((c[1] - '0') * 64 + (c[2] - '0') * 8 + (c[3] - '0')));
            c += 3;
        } else {
            g_string_append_c (plain, *c);
        }
    }
    return g_string_free (plain, FALSE);
}

/* The archive directory behind a line of mountinfo when it is an ecfs mount on @mountpoint, else NULL. */
static char *archive_of_line (const char *line, const char *mountpoint)
{
    g_auto (GStrv) fields = g_strsplit (line, " ", -1);
    unsigned n_fields = g_strv_length (fields), dash = 6;
    while (dash < n_fields && strcmp (fields[dash], "-") != 0)
        dash++;
    if (dash + 2 >= n_fields)
        return NULL;
    g_autofree char *target = unescape (fields[4]);
    g_autofree char *source = unescape (fields[dash + 2]);
    if (strcmp (target, mountpoint) != 0 || !g_str_has_prefix (source, "ecfs:"))
        return NULL;
    return g_strdup (source + strlen ("ecfs:"));
}

static char *find_archive (const char *mountpoint, GError **error)
{
    g_autofree char *mounts = NULL;
    size_t size;
    if (!g_file_get_contents ("/proc/self/mountinfo", &mounts, &size, error))
        return NULL;
    g_auto (GStrv) lines = g_strsplit (mounts, "\n", -1);
    char *found = NULL; /* the last: what is mounted on top */
    for (char **line = lines; *line != NULL; line++) {
        char *archive = archive_of_line (*line, mountpoint);
        if (archive == NULL)
            continue;
        g_free (found);
        found = archive;
    }
    bool good = found != NULL || ecfs_fail (error, EINVAL, "%s: no archive is mounted there", mountpoint);
    return good ? found : NULL;
}

/* As the kernel names it. The mountpoint itself is not touched: it may be dead, and then everything on it fails. */
static char *kernel_name (const char *mountpoint)
{
    g_autofree char *absolute = g_canonicalize_filename (mountpoint, NULL);
    g_autofree char *parent = g_path_get_dirname (absolute);
    g_autofree char *name = g_path_get_basename (absolute);
    char *real = realpath (parent, NULL);
    char *path = real == NULL ? g_strdup (absolute) : g_build_filename (real, name, NULL);
    free (real);
    return path;
}

static JsonNode *request (const char *word)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "verb", word);
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, object);
    return node;
}

/* Everything is committed by now, but an endpoint that is down may still lack its stripes. */
static void tell_what_is_not_full (const Verb *verb, const char *directory)
{
    EcfsTotals totals;
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, NULL);
    if (archive == NULL || !ecfs_catalog_totals (ecfs_archive_catalog (archive), &totals, NULL))
        return; /* only a hint: whoever mounts it next is told */
    if (totals.n_not_full > 0)
        tool_say (verb->name,
                  "unmounted; %" PRIu64
                  " objects are stored safely, but not on all of their endpoints yet: the next mount "
                  "goes on with them",
                  totals.n_not_full);
}

int verb_umount (const Verb *verb, int argc, char **argv)
{
    (void) tool_parse (verb, NULL, argc, argv, 1, 1);
    GError *error = NULL;
    g_autofree char *mountpoint = kernel_name (argv[1]);
    g_autofree char *archive = find_archive (mountpoint, &error);
    if (archive == NULL && g_file_test (mountpoint, G_FILE_TEST_IS_SYMLINK)) {
        char *real = realpath (mountpoint, NULL);
        if (real != NULL) {
            g_clear_error (&error);
            archive = find_archive (real, &error);
        }
        free (real);
    }
    if (archive == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    g_autoptr (JsonNode) question = request ("umount");
    g_autoptr (JsonNode) answer = ecfs_control_call (archive, question, &error);
    if (answer != NULL) {
        tell_what_is_not_full (verb, archive);
        return TOOL_DONE;
    }
    if (ecfs_errno (error) != ENOTCONN)
        return tool_fail (verb->name, error, TOOL_FAILED);
    g_error_free (error);
    tool_say (verb->name,
              "%s: the process behind this mount is gone; \"fusermount3 -u -z %s\" clears it away, and the "
              "next mount stores what is staged",
              mountpoint, mountpoint);
    return TOOL_FAILED;
}
