/*
 * Processes of rclone that do one thing, for what its server has no words for: lists with paths and times, directories,
 * space. Their output is looked at in each round of the event loop.
 */
#include "endpoint/rclone/rclone_priv.h"

#include <string.h>
#include <unistd.h>

#define SILENCE_US (60 * G_USEC_PER_SEC) /* of a process, or stall_timeout if that is longer */

char *ecfs_rclone_place (const EcfsRclone *self, const char *name)
{
    const char *place = self->config->place;
    bool joined = *name == '\0' || g_str_has_suffix (place, ":") || g_str_has_suffix (place, "/");
    return g_strconcat (place, joined ? "" : "/", name, NULL);
}

static void clear (EcfsHttpOp *op)
{
    EcfsRcloneRun *run = (EcfsRcloneRun *) op;
    (void) ecfs_rclone_end (&run->child, true);
    g_clear_pointer (&run->child.last, g_free);
    g_string_free (run->rest, TRUE);
    g_queue_unlink (&ecfs_rclone (op->http)->runs, &run->run_link);
}

EcfsRcloneRun *ecfs_rclone_run_new (EcfsRclone *self, EcfsStream *request, size_t size)
{
    EcfsRcloneRun *run = (EcfsRcloneRun *) ecfs_http_op_new (&self->http, request, size);
    run->op.clear = clear;
    run->op.cancel = ecfs_http_cancel;
    run->child.fd = run->child.errors = -1;
    run->rest = g_string_new (NULL);
    run->run_link.data = run;
    g_queue_push_tail_link (&self->runs, &run->run_link);
    return run;
}

void ecfs_rclone_run_start (EcfsRcloneRun *run, const char *const *words)
{
    GError *error = NULL;
    g_string_truncate (run->rest, 0);
    run->n_heard = 0;
    run->full = run->any = run->bad = false;
    run->heard_us = ecfs_now_us ();
    g_clear_pointer (&run->child.last, g_free);
    if (!ecfs_rclone_spawn (&run->child, ecfs_rclone (run->op.http)->config, words, &error))
        run->ended (run, -1, error);
}

static void hear_lines (EcfsRcloneRun *run)
{
    for (const char *end; !run->full && (end = memchr (run->rest->str, '\n', run->rest->len)) != NULL;) {
        size_t size = (size_t) (end - run->rest->str);
        run->full = run->line != NULL && !run->line (run, run->rest->str, size);
        g_string_erase (run->rest, 0, (gssize) size + 1);
    }
}

/* False: its output has ended, or nobody wants more of it. */
static bool hear (EcfsRcloneRun *run)
{
    char bytes[64 * 1024];
    while (!run->full && run->rest->len <= ECFS_RCLONE_LINE_MAX) {
        ssize_t n = read (run->child.fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)
            return false;
        run->heard_us = ecfs_now_us ();
        run->n_heard += (size_t) n;
        g_string_append_len (run->rest, bytes, n);
        if (run->line != NULL)
            hear_lines (run);
    }
    return false;
}

static void look (EcfsRclone *self, EcfsRcloneRun *run)
{
    int64_t usual_us = MAX (ecfs_slot_stall_timeout_us (self->http.slot), SILENCE_US);
    int64_t patience_us = run->patience_us > 0 ? run->patience_us : usual_us;
    ecfs_rclone_hear (&run->child);
    GError *error = NULL;
    if (hear (run)) {
        if (ecfs_now_us () - run->heard_us < patience_us)
            return;
        error = ecfs_http_error (ETIMEDOUT, "%s says nothing for %.3g s", self->config->program,
                                 (double) patience_us / G_USEC_PER_SEC);
    } else if (!run->full && run->rest->len > ECFS_RCLONE_LINE_MAX) {
        error = ecfs_http_error (EPROTO, "%s writes a line that is too long", self->config->program);
    }
    int status = ecfs_rclone_end (&run->child, error != NULL || run->full);
    run->ended (run, run->full ? 0 : status, error);
}

void ecfs_rclone_look (EcfsHttp *http)
{
    EcfsRclone *self = ecfs_rclone (http);
    if (self->listener >= 0)
        ecfs_rclone_serve (self);
    ecfs_rclone_hear (&self->child);
    if (http->broken == NULL && self->child.pid > 0 && self->child.errors < 0) /* nothing is to be asked of its name */
        ecfs_http_break (http, ecfs_rclone_ended (self->config, &self->child));
    for (GList *at = self->runs.head, *next; at != NULL; at = next) {
        next = at->next;
        EcfsRcloneRun *run = at->data;
        if (run->child.pid > 0)
            look (self, run);
    }
    ecfs_rclone_mend (self);
}

static unsigned add_fd (struct curl_waitfd *fds, unsigned at, unsigned n, int fd)
{
    if (fd < 0 || at >= n)
        return at;
    fds[at] = (struct curl_waitfd){.fd = fd, .events = CURL_WAIT_POLLIN};
    return at + 1;
}

unsigned ecfs_rclone_watch (EcfsHttp *http, struct curl_waitfd *fds, unsigned n)
{
    const EcfsRclone *self = ecfs_rclone (http);
    unsigned at = add_fd (fds, 0, n, self->child.errors);
    for (const GList *run = self->runs.head; run != NULL; run = run->next) {
        at = add_fd (fds, at, n, ((const EcfsRcloneRun *) run->data)->child.fd);
        at = add_fd (fds, at, n, ((const EcfsRcloneRun *) run->data)->child.errors);
    }
    return at;
}
