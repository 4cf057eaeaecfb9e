/* Requests of gridftp drivers that change something: files stored and removed, markers. */
#include "endpoint/gridftp/gridftp_priv.h"

#include <inttypes.h>
#include <string.h>

#define TURN_US     (G_USEC_PER_SEC / 2) /* a write that flows gives way to others after this */
#define PATIENCE_US (30 * 1000)          /* and one whose source has nothing after this: to go on costs a connection */

typedef struct EcfsGridftpWrite {
    char *temporary;      /* name below the root */
    uint64_t sent;        /* bytes, to the helper */
    uint64_t returned;    /* of these, by the helper: they are on their way */
    const uint8_t *bytes; /* pulled, and not yet sent */
    size_t n_bytes;
    EcfsPull last; /* answer of the source; END and ABORT are for good */
} EcfsGridftpWrite;

/* The name to be */

/* Makes the directories above @name, but not the root. */
static bool make_parents (EcfsGridftp *self, const char *name, GError **error)
{
    for (const char *slash = strchr (name, '/'); slash != NULL; slash = strchr (slash + 1, '/')) {
        g_autofree char *directory = g_strndup (name, (size_t) (slash - name));
        GError *problem = NULL;
        if (!ecfs_gridftp_do (self, ECFS_GRIDFTP_MAKE, directory, NULL, &problem) && problem->code != EEXIST) {
            g_propagate_error (error, problem);
            return false;
        }
        g_clear_error (&problem);
    }
    return true;
}

static bool rename_to (EcfsGridftp *self, const char *temporary, const char *name, GError **error)
{
    g_autoptr (GError) problem = NULL;
    if (ecfs_gridftp_do (self, ECFS_GRIDFTP_MOVE, temporary, name, &problem))
        return true;
    if (problem->code != ENOENT || strchr (name, '/') == NULL) {
        g_propagate_error (error, g_steal_pointer (&problem));
        return false;
    }
    return make_parents (self, name, error) && ecfs_gridftp_do (self, ECFS_GRIDFTP_MOVE, temporary, name, error);
}

/* Servers rename over what is there, so that is looked for before; names are never used twice, and within this program
 * no two commit the same at once. */
static bool rename_to_new (EcfsGridftp *self, const char *temporary, const char *name, GError **error)
{
    EcfsFacts facts;
    g_autoptr (GError) problem = NULL;
    if (ecfs_gridftp_facts (self, name, &facts, &problem) || problem->code == EPROTO)
        return ecfs_fail_errno (error, EEXIST, "%s", name);
    if (problem->code == ENOENT)
        return rename_to (self, temporary, name, error);
    g_propagate_error (error, g_steal_pointer (&problem));
    return false;
}

static bool check_size (EcfsGridftp *self, const char *temporary, uint64_t size, GError **error)
{
    EcfsFacts facts;
    if (!ecfs_gridftp_facts (self, temporary, &facts, error))
        return false;
    if (facts.size != size)
        return ecfs_fail (error, EIO,
                          "%s: the server keeps %" PRIu64 " of the %" PRIu64 " bytes that were written: check its disk",
                          temporary, facts.size, size);
    return true;
}

static bool commit (EcfsGridftp *self, const char *temporary, uint64_t size, const char *name, GError **error)
{
    EcfsGridftpShared *shared = self->config->shared;
    if (!check_size (self, temporary, size, error))
        return false;
    if (!ecfs_claims_take (shared->committing, name))
        return ecfs_fail_errno (error, EEXIST, "%s", name);
    bool done = rename_to_new (self, temporary, name, error);
    ecfs_claims_release (shared->committing, name);
    return done;
}

/* Best effort: list shows what stays. */
static void remove_temporary (EcfsGridftp *self, const char *temporary)
{
    g_autoptr (GError) ignored = NULL;
    if (self->broken == NULL)
        (void) !ecfs_gridftp_do (self, ECFS_GRIDFTP_REMOVE, temporary, NULL, &ignored);
}

static bool make_incoming (EcfsGridftp *self, GError **error)
{
    if (atomic_load (&self->config->shared->has_incoming))
        return true;
    GError *problem = NULL;
    if (ecfs_gridftp_do (self, ECFS_GRIDFTP_MAKE, ECFS_INCOMING, NULL, &problem) || problem->code == EEXIST) {
        g_clear_error (&problem);
        atomic_store (&self->config->shared->has_incoming, true);
        return true;
    }
    g_propagate_error (error, problem);
    return false;
}

/* Storing */

static void write_free (EcfsGridftpWrite *write)
{
    g_free (write->temporary);
    g_free (write);
}

static void forget (EcfsGridftp *self, EcfsStream *request)
{
    EcfsGridftpWrite *write = g_steal_pointer (&request->driver_data);
    g_queue_remove (&self->writes, request);
    if (self->storing == request)
        self->storing = NULL;
    write_free (write);
}

void ecfs_gridftp_write_abandon (EcfsGridftp *self)
{
    while (self->writes.length > 0)
        forget (self, self->writes.head->data);
}

void ecfs_gridftp_write_begin (EcfsGridftp *self, EcfsStream *request)
{
    EcfsGridftpWrite *write = g_new0 (EcfsGridftpWrite, 1);
    write->temporary = ecfs_incoming_name (request->name);
    request->driver_data = write;
    g_queue_push_tail (&self->writes, request);
}

/* The PUT of a write is over: nothing of it is under way. */
static void close_put (EcfsGridftp *self)
{
    self->storing = NULL;
    memset (self->with_helper, 0, sizeof self->with_helper);
    self->n_with_helper = 0;
}

/* There was no directory for a write: where there is no marker either, the root is not there any more. */
static void doubt_root (EcfsGridftp *self)
{
    EcfsFacts facts;
    g_autoptr (GError) error = NULL;
    atomic_store (&self->config->shared->has_incoming, false);
    if (!ecfs_gridftp_facts (self, ECFS_MARKER_NAME, &facts, &error) && error->code == ENOENT)
        ecfs_gridftp_break (self, g_error_new_literal (ECFS_ERROR, ENOTCONN,
                                                       "has no " ECFS_MARKER_NAME " file any more: not mounted?"));
}

/* Ends the request; what it left is removed unless it was committed. */
static void end_write (EcfsGridftp *self, EcfsStream *request, GError *error)
{
    g_autofree char *temporary = g_strdup (((EcfsGridftpWrite *) request->driver_data)->temporary);
    if (self->broken == NULL && error != NULL && error->code == ENOENT)
        doubt_root (self);
    if (self->broken != NULL) { /* the core ends it */
        g_clear_error (&error);
        return;
    }
    forget (self, request);
    if (error == NULL) {
        ecfs_gridftp_finish (self, request, 0, NULL);
        return;
    }
    remove_temporary (self, temporary);
    ecfs_gridftp_finish (self, request, 0, error);
}

static void take_return (EcfsGridftp *self, EcfsStream *request)
{
    EcfsGridftpWrite *write = request->driver_data;
    uint32_t block = self->message.block;
    if (!self->with_helper[block])
        return;
    self->with_helper[block] = false;
    self->n_with_helper--;
    write->returned = MIN (write->returned + self->message.length, write->sent);
    ecfs_request_acknowledge (request, write->returned);
    if (self->n_with_helper == 0)
        ecfs_slot_owed (self->slot, ECFS_OWES_NOTHING);
}

static void send_block (EcfsGridftp *self, EcfsStream *request, uint32_t block, size_t size, bool end)
{
    EcfsGridftpWrite *write = request->driver_data;
    EcfsGridftpMessage message = {
        .type = ECFS_GRIDFTP_BLOCK, .block = block, .end = end, .offset = write->sent, .length = size};
    self->with_helper[block] = true;
    self->n_with_helper++;
    write->sent += size;
    ecfs_slot_owed (self->slot, self->is_new ? ECFS_OWES_CONNECT : ECFS_OWES_ANSWER);
    ecfs_gridftp_say (self, &message);
}

/* A block that is ours, or ECFS_GRIDFTP_N_BLOCKS. */
static uint32_t free_block (const EcfsGridftp *self)
{
    uint32_t block = 0;
    while (block < ECFS_GRIDFTP_N_BLOCKS && self->with_helper[block])
        block++;
    return block;
}

/* Takes what the helper says of the PUT. False: it is over, well or not (then *error). */
static bool take_message (EcfsGridftp *self, GError **error)
{
    EcfsStream *request = self->storing;
    if (self->message.type == ECFS_GRIDFTP_RETURN)
        take_return (self, request);
    if (self->message.type != ECFS_GRIDFTP_DONE)
        return true;
    EcfsGridftpWrite *write = request->driver_data;
    close_put (self);
    if (ecfs_gridftp_outcome (self, request->name, error))
        ecfs_request_acknowledge (request, write->sent);
    return false;
}

/* Waits until the PUT, of which the last block was sent, is over. */
static bool await_stored (EcfsGridftp *self, GError **error)
{
    for (;;) {
        EcfsGridftpHeard heard = ecfs_gridftp_hear (self, G_MAXINT64);
        if (heard == ECFS_GRIDFTP_BROKEN)
            return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
        GError *problem = NULL;
        if (heard != ECFS_GRIDFTP_HEARD || take_message (self, &problem))
            continue;
        if (problem != NULL)
            g_propagate_error (error, problem);
        return problem == NULL;
    }
}

/* Waits until there is a free block, or the write was cancelled. False: the PUT is over, or the connection broken. */
static bool await_block (EcfsGridftp *self, GError **error)
{
    while (free_block (self) == ECFS_GRIDFTP_N_BLOCKS && !ecfs_request_cancelled (self->storing)) {
        EcfsGridftpHeard heard = ecfs_gridftp_hear (self, G_MAXINT64);
        if (heard == ECFS_GRIDFTP_BROKEN)
            return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
        if (heard == ECFS_GRIDFTP_HEARD && !take_message (self, error))
            return false;
    }
    return true;
}

/* Ends the PUT where it is. */
static bool end_put (EcfsGridftp *self, GError **error)
{
    if (!await_block (self, error))
        return false;
    if (ecfs_request_cancelled (self->storing) && free_block (self) == ECFS_GRIDFTP_N_BLOCKS) {
        ecfs_gridftp_abort (self);
        close_put (self);
        return ecfs_fail (error, ECANCELED, "%s: cancelled", "write");
    }
    send_block (self, self->storing, free_block (self), 0, true);
    return await_stored (self, error);
}

void ecfs_gridftp_write_suspend (EcfsGridftp *self)
{
    EcfsStream *request = self->storing;
    GError *error = NULL;
    if (request != NULL && !end_put (self, &error))
        end_write (self, request, error);
}

static bool open_put (EcfsGridftp *self, EcfsStream *request, GError **error)
{
    const EcfsGridftpWrite *write = request->driver_data;
    if (!make_incoming (self, error))
        return false;
    ecfs_gridftp_ask (self, ECFS_GRIDFTP_PUT, write->temporary, NULL, write->sent, 0);
    self->storing = request;
    self->stored_since_us = ecfs_now_us ();
    self->parked_us = 0;
    return true;
}

/* Asks the source where there is nothing left of what it gave before. */
static EcfsPull look (EcfsStream *request)
{
    EcfsGridftpWrite *write = request->driver_data;
    if (write->n_bytes == 0 && (write->last == ECFS_PULL_BYTES || write->last == ECFS_PULL_LATER)) {
        write->last = ecfs_request_pull (request, &write->bytes, &write->n_bytes);
        if (write->last != ECFS_PULL_BYTES)
            write->n_bytes = 0;
    }
    return write->last;
}

/* Fills @to with what the source has. Returns the last answer of the source: BYTES when @to is full. */
static EcfsPull fill (EcfsStream *request, uint8_t *to, size_t *ret_size)
{
    EcfsGridftpWrite *write = request->driver_data;
    size_t size = 0;
    EcfsPull answer = ECFS_PULL_BYTES;
    while (size < ECFS_GRIDFTP_BLOCK_BYTES && (answer = look (request)) == ECFS_PULL_BYTES) {
        size_t step = MIN (write->n_bytes, ECFS_GRIDFTP_BLOCK_BYTES - size);
        memcpy (to + size, write->bytes, step);
        write->bytes += step;
        write->n_bytes -= step;
        size += step;
    }
    *ret_size = size;
    return answer;
}

/* Nobody wants the write any more: its PUT is ended, its file removed. */
static void give_up (EcfsGridftp *self, EcfsStream *request)
{
    g_autoptr (GError) ignored = NULL;
    if (self->storing == request)
        (void) !end_put (self, &ignored);
    end_write (self, request, g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", request->name));
}

/* All was sent: stores it for good. */
static void complete (EcfsGridftp *self, EcfsStream *request)
{
    const EcfsGridftpWrite *write = request->driver_data;
    GError *error = NULL;
    if (await_stored (self, &error))
        (void) !commit (self, write->temporary, write->sent, request->name, &error);
    end_write (self, request, error);
}

/* Sends a block. False: the source has nothing now; the write may have ended otherwise. */
static bool send_some (EcfsGridftp *self, EcfsStream *request)
{
    uint32_t block = free_block (self);
    size_t size = 0;
    EcfsPull answer = fill (request, self->memory + (size_t) block * ECFS_GRIDFTP_BLOCK_BYTES, &size);
    if (answer == ECFS_PULL_ABORT) {
        give_up (self, request);
        return true;
    }
    if (size > 0 || answer == ECFS_PULL_END)
        send_block (self, request, block, size, answer == ECFS_PULL_END);
    if (answer == ECFS_PULL_END)
        complete (self, request);
    return size > 0 || answer != ECFS_PULL_LATER;
}

/* Takes what the helper has said already. False: the PUT is over, or the connection broken. */
static bool take_messages (EcfsGridftp *self, GError **error)
{
    EcfsGridftpHeard heard;
    while ((heard = ecfs_gridftp_hear (self, 0)) == ECFS_GRIDFTP_HEARD)
        if (!take_message (self, error))
            return false;
    if (heard == ECFS_GRIDFTP_BROKEN)
        return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
    return true;
}

/* Moves the write whose PUT is open. False: its source has nothing. */
static bool step_storing (EcfsGridftp *self)
{
    EcfsStream *request = self->storing;
    bool moved = false;
    while (self->storing == request && self->broken == NULL) {
        GError *error = NULL;
        if (!take_messages (self, &error) || !await_block (self, &error)) {
            end_write (self, request, error);
            return true;
        }
        if (ecfs_request_cancelled (request)) {
            give_up (self, request);
            return true;
        }
        if (!send_some (self, request)) {
            if (self->parked_us == 0)
                self->parked_us = ecfs_now_us ();
            return moved;
        }
        moved = true;
        self->parked_us = 0;
        if (ecfs_gridftp_write_gives_way (self))
            return true;
    }
    return true;
}

/* One without a PUT that needs it. */
static EcfsStream *first_ready (EcfsGridftp *self)
{
    for (GList *at = self->writes.head; at != NULL; at = at->next)
        if (at->data != self->storing && (ecfs_request_cancelled (at->data) || look (at->data) != ECFS_PULL_LATER))
            return at->data;
    return NULL;
}

static void resume (EcfsGridftp *self, EcfsStream *request)
{
    GError *error = NULL;
    if (ecfs_request_cancelled (request) || look (request) == ECFS_PULL_ABORT) {
        give_up (self, request);
        return;
    }
    g_queue_remove (&self->writes, request); /* takes turns with others */
    g_queue_push_tail (&self->writes, request);
    if (!open_put (self, request, &error))
        end_write (self, request, error);
}

bool ecfs_gridftp_write_gives_way (const EcfsGridftp *self)
{
    if (self->storing == NULL)
        return true;
    int64_t now_us = ecfs_now_us ();
    return self->parked_us != 0 ? now_us - self->parked_us >= PATIENCE_US : now_us - self->stored_since_us >= TURN_US;
}

bool ecfs_gridftp_write_step (EcfsGridftp *self)
{
    bool moved = self->storing != NULL && step_storing (self);
    EcfsStream *ready = self->broken == NULL && ecfs_gridftp_write_gives_way (self) ? first_ready (self) : NULL;
    if (ready == NULL)
        return moved;
    ecfs_gridftp_write_suspend (self);
    if (self->broken == NULL)
        resume (self, ready);
    return true;
}

void ecfs_gridftp_remove (EcfsGridftp *self, EcfsStream *request)
{
    GError *error = NULL;
    (void) !ecfs_gridftp_do (self, ECFS_GRIDFTP_REMOVE, request->name, NULL, &error);
    ecfs_gridftp_finish (self, request, 0, error);
}

void ecfs_gridftp_rmdir (EcfsGridftp *self, EcfsStream *request)
{
    GError *error = NULL;
    (void) !ecfs_gridftp_do (self, ECFS_GRIDFTP_UNMAKE, request->name, NULL, &error);
    ecfs_gridftp_finish (self, request, 0, error);
}

/* Markers */

static bool store_text (EcfsGridftp *self, const char *name, const char *text, GError **error)
{
    size_t size = strlen (text);
    if (!make_incoming (self, error))
        return false;
    memcpy (self->memory, text, size);
    ecfs_gridftp_ask (self, ECFS_GRIDFTP_PUT, name, NULL, 0, 0);
    ecfs_gridftp_say (self, &(EcfsGridftpMessage){.type = ECFS_GRIDFTP_BLOCK, .length = size, .end = 1});
    return ecfs_gridftp_await (self, name, G_MAXINT64, error) && check_size (self, name, size, error);
}

void ecfs_gridftp_mark (EcfsGridftp *self, EcfsStream *request)
{
    char there[ECFS_MARKER_MAX_SIZE + 1];
    size_t size = 0;
    GError *error = NULL;
    bool absent = !request->create || !ecfs_gridftp_peek (self, ECFS_MARKER_NAME, there, sizeof there, &size, &error);
    if (!absent) {
        ecfs_request_fail_marked (request, there, size);
        return;
    }
    if (error == NULL || error->code == ENOENT) {
        g_clear_error (&error);
        g_autofree char *temporary = ecfs_incoming_name (NULL);
        if (!store_text (self, temporary, request->text, &error) ||
            !rename_to (self, temporary, ECFS_MARKER_NAME, &error))
            remove_temporary (self, temporary);
    }
    ecfs_gridftp_finish (self, request, 0, error);
}
