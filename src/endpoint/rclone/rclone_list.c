/* Lists, directories and space, by processes of their own. */
#include "endpoint/rclone/rclone_priv.h"

#include <string.h>

#define SPACE_US (5 * 60 * G_USEC_PER_SEC) /* for so long a figure serves, less what was written since */

/* An error where a process did not do what it was to do; NULL: it did. @error: as ended () got it, taken. */
static GError *verdict (EcfsRcloneRun *run, int status, GError *error, const char *name)
{
    EcfsRclone *self = ecfs_rclone (run->op.http);
    const char *last = run->child.last;
    if (error == NULL && run->bad)
        return ecfs_http_error (EPROTO, "%s: the list of rclone makes no sense", *name == '\0' ? "the remote" : name);
    if (error != NULL || status == 0)
        return error;
    if (run->any) /* whatever vanished meanwhile: what was not told is not absent */
        return ecfs_http_error (EIO, "%s: the list broke off: %s", *name == '\0' ? "the remote" : name,
                                last != NULL ? last : "rclone ended without a word");
    return ecfs_rclone_error (self, name, last != NULL ? last : "rclone ended without a word");
}

/* Lists */

/* The lines around items. */
static bool is_frame (const char *text, size_t size)
{
    g_autofree char *word = g_strstrip (g_strndup (text, size));
    return *word == '\0' || g_str_equal (word, "[") || g_str_equal (word, "]") || g_str_equal (word, "[]");
}

/* The next item of a list; false: there is none in this line, and where that is no list, it has heard enough. */
static bool take_item (EcfsRcloneRun *run, const char *text, size_t size, EcfsRcloneItem *ret_item)
{
    if (ecfs_rclone_item_parse (text, size, ret_item)) {
        run->any = true;
        return true;
    }
    run->bad = !is_frame (text, size);
    return false;
}

static bool on_line (EcfsRcloneRun *run, const char *text, size_t size)
{
    EcfsStream *request = run->op.request;
    EcfsRcloneItem item;
    if (!take_item (run, text, size, &item))
        return !run->bad;
    g_autofree char *name = g_strconcat (request->name, *request->name == '\0' ? "" : "/", item.path, NULL);
    if (!item.is_directory)
        ecfs_request_listed (request, name, item.size, item.mtime_s);
    ecfs_rclone_item_clear (&item);
    return true;
}

static void listed (EcfsRcloneRun *run, int status, GError *error)
{
    const char *name = run->op.request->name;
    bool absent = error == NULL && status == ECFS_RCLONE_ABSENT_STATUS && *name != '\0' && !run->any && !run->bad;
    ecfs_http_op_end (&run->op, 0, absent ? NULL : verdict (run, status, error, name));
}

void ecfs_rclone_list_begin (EcfsHttp *http, EcfsStream *request)
{
    EcfsRclone *self = ecfs_rclone (http);
    EcfsRcloneRun *run = ecfs_rclone_run_new (self, request, sizeof *run);
    g_autofree char *place = ecfs_rclone_place (self, request->name);
    /* Times are those at which the remote got files: others cost a request for each file at some. */
    const char *const words[] = {"lsjson",      "--recursive",          "--files-only", "--no-mimetype",
                                 "--fast-list", "--use-server-modtime", place,          NULL};
    run->line = on_line;
    run->ended = listed;
    ecfs_rclone_run_start (run, words);
}

/*
 * Removing a directory: is something in it? → (where the remote has no directories: was something in it?) → remove it.
 */
typedef struct RmdirRun {
    EcfsRcloneRun run;
    bool has_members;
} RmdirRun;

static bool on_member (EcfsRcloneRun *run, const char *text, size_t size)
{
    EcfsRcloneItem item;
    if (!take_item (run, text, size, &item))
        return !run->bad;
    ecfs_rclone_item_clear (&item);
    ((RmdirRun *) run)->has_members = true;
    return false;
}

static void directory_removed (EcfsRcloneRun *run, int status, GError *error)
{
    ecfs_http_op_end (&run->op, 0, verdict (run, status, error, run->op.request->name));
}

static void remove_directory (RmdirRun *rmdir)
{
    EcfsRclone *self = ecfs_rclone (rmdir->run.op.http);
    g_autofree char *place = ecfs_rclone_place (self, rmdir->run.op.request->name);
    const char *const words[] = {"rmdir", place, NULL};
    rmdir->run.line = NULL;
    rmdir->run.ended = directory_removed;
    ecfs_rclone_run_start (&rmdir->run, words);
}

static int directories (const EcfsRclone *self)
{
    EcfsRcloneShared *shared = self->config->shared;
    ecfs_mutex_lock (&shared->lock);
    int n = shared->n_directories;
    ecfs_mutex_unlock (&shared->lock);
    return n;
}

/* Whether something was in a directory, so that it was there, and is removed by this. */
static bool was_emptied (const EcfsRclone *self, const char *name)
{
    EcfsRcloneShared *shared = self->config->shared;
    ecfs_mutex_lock (&shared->lock);
    bool was = g_hash_table_remove (shared->emptied, name);
    ecfs_mutex_unlock (&shared->lock);
    return was;
}

static void go_on (RmdirRun *rmdir)
{
    EcfsRclone *self = ecfs_rclone (rmdir->run.op.http);
    const char *name = rmdir->run.op.request->name;
    if (directories (self) == 0 && !was_emptied (self, name))
        ecfs_http_op_end (&rmdir->run.op, 0, ecfs_http_error (ENOENT, "%s: %s", name, g_strerror (ENOENT)));
    else
        remove_directory (rmdir);
}

static void features_told (EcfsRcloneRun *run, int status, GError *error)
{
    EcfsRclone *self = ecfs_rclone (run->op.http);
    EcfsRcloneShared *shared = self->config->shared;
    error = verdict (run, status, error, "its features");
    if (error != NULL) {
        ecfs_http_op_end (&run->op, 0, error);
        return;
    }
    ecfs_mutex_lock (&shared->lock);
    shared->n_directories = strstr (run->rest->str, "\"CanHaveEmptyDirectories\": false") == NULL ? 1 : 0;
    ecfs_mutex_unlock (&shared->lock);
    go_on ((RmdirRun *) run);
}

static void ask_features (RmdirRun *rmdir)
{
    EcfsRclone *self = ecfs_rclone (rmdir->run.op.http);
    const char *const words[] = {"backend", "features", self->config->place, NULL};
    rmdir->run.line = NULL;
    rmdir->run.ended = features_told;
    ecfs_rclone_run_start (&rmdir->run, words);
}

static void members_told (EcfsRcloneRun *run, int status, GError *error)
{
    RmdirRun *rmdir = (RmdirRun *) run;
    const char *name = run->op.request->name;
    error = verdict (run, status, error, name);
    if (error == NULL && rmdir->has_members)
        error = ecfs_http_error (ENOTEMPTY, "%s: %s", name, g_strerror (ENOTEMPTY));
    if (error != NULL)
        ecfs_http_op_end (&run->op, 0, error);
    else if (directories (ecfs_rclone (run->op.http)) < 0)
        ask_features (rmdir);
    else
        go_on (rmdir);
}

void ecfs_rclone_rmdir_begin (EcfsHttp *http, EcfsStream *request)
{
    EcfsRclone *self = ecfs_rclone (http);
    EcfsRcloneRun *run = ecfs_rclone_run_new (self, request, sizeof (RmdirRun));
    g_autofree char *place = ecfs_rclone_place (self, request->name);
    /* Of a directory in it that has nothing either, where there are any, removing this one tells. */
    const char *const words[] = {"lsjson", "--recursive", "--files-only", "--no-mimetype", "--no-modtime", place, NULL};
    run->line = on_member;
    run->ended = members_told;
    ecfs_rclone_run_start (run, words);
}

/* Space */

static void finish_space (EcfsRclone *self, EcfsStream *request)
{
    EcfsRcloneShared *shared = self->config->shared;
    ecfs_mutex_lock (&shared->lock);
    bool tells = shared->tells_space == 1;
    uint64_t free_bytes = shared->free_bytes - MIN (shared->free_bytes, shared->written);
    ecfs_mutex_unlock (&shared->lock);
    if (tells)
        ecfs_request_finish_space (request, free_bytes, NULL);
    else
        ecfs_request_fail (request, ENOTSUP, "the remote %s does not tell its space", self->config->remote);
}

static void space_told (EcfsRcloneRun *run, int status, GError *error)
{
    EcfsRclone *self = ecfs_rclone (run->op.http);
    EcfsStream *request = run->op.request;
    error = verdict (run, status, error, "its space");
    if (error == NULL && ecfs_rclone_note_space (self->config, run->rest->str, run->rest->len))
        ecfs_http_op_drop (&run->op), finish_space (self, request);
    else
        ecfs_http_op_end (&run->op, 0, error != NULL ? error : ecfs_http_error (EIO, "it does not tell its space"));
}

void ecfs_rclone_space_begin (EcfsHttp *http, EcfsStream *request)
{
    EcfsRclone *self = ecfs_rclone (http);
    EcfsRcloneShared *shared = self->config->shared;
    ecfs_mutex_lock (&shared->lock);
    bool known = shared->tells_space == 0 || (shared->told_us != 0 && ecfs_now_us () - shared->told_us < SPACE_US);
    ecfs_mutex_unlock (&shared->lock);
    if (known) {
        finish_space (self, request);
        return;
    }
    EcfsRcloneRun *run = ecfs_rclone_run_new (self, request, sizeof *run);
    run->ended = space_told;
    const char *const words[] = {"about", "--json", self->config->place, NULL};
    ecfs_rclone_run_start (run, words);
}
