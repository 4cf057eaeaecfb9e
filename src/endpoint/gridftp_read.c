/* Requests of gridftp drivers that read: files, markers, sizes, directories. */
#include "endpoint/gridftp_priv.h"

#include <inttypes.h>
#include <string.h>

#define STEP_BYTES  (64 * 1024)       /* of a file between two calls of the sink */
#define BATCH_BYTES (8 * 1024 * 1024) /* asked for together */
#define DRAIN_BYTES (1024 * 1024)     /* rather read to the end than aborted: that ends the connection */
#define MAX_LINE    (16 * 1024)       /* of a listing */
#define MAX_WAITING 1000000           /* directories that are still to be listed */
#define MAX_AHEAD   1024              /* pieces of a GET with gaps before them; streams are a few blocks apart */

/* A range of a request that a GET fills. */
typedef struct Part {
    EcfsStream *request; /* NULL: finished, what comes is thrown away */
    size_t range_index;
    uint64_t offset;
    size_t size;
    size_t filled;
    uint8_t *to;
} Part;

/* Requests of one file, each range where the one before ends, so that one GET brings them all. */
typedef struct Batch {
    GArray *parts;     /* of Part */
    unsigned n_wanted; /* requests that are not finished */
} Batch;

/* What came of a GET before what stands in front of it: streams overtake each other. */
typedef struct Piece {
    uint64_t from, to;
} Piece;

typedef struct Get {
    Batch *batch;
    size_t first, n; /* of the parts */
    uint64_t offset, end;
    uint64_t filled_to; /* without gaps */
    GArray *ahead;      /* of Piece */
} Get;

static Part *part_at (const Batch *batch, size_t i)
{
    return &g_array_index (batch->parts, Part, i);
}

static void add_request (Batch *batch, EcfsStream *request)
{
    for (size_t i = 0; i < request->n_ranges; i++) {
        const EcfsRange *range = &request->ranges[i];
        Part part = {
            .request = request, .range_index = i, .offset = range->offset, .size = range->size, .to = range->to};
        g_array_append_val (batch->parts, part);
    }
    batch->n_wanted++;
}

/* Takes what is asked of the file right behind; a request that is not like that is begun next. */
static void extend (EcfsGridftp *self, Batch *batch)
{
    const Part *first = part_at (batch, 0);
    for (;;) {
        const Part *last = part_at (batch, batch->parts->len - 1);
        if (last->offset + last->size - first->offset >= BATCH_BYTES || self->next != NULL)
            return;
        EcfsStream *request = ecfs_slot_take (self->slot);
        if (request == NULL)
            return;
        if (request->kind != ECFS_REQUEST_READ || !g_str_equal (request->name, first->request->name) ||
            request->ranges[0].offset != last->offset + last->size || ecfs_request_cancelled (request)) {
            self->next = request;
            return;
        }
        add_request (batch, request);
        first = part_at (batch, 0);
    }
}

/* Ends @request, with @error (borrowed; may be NULL) or well. */
static void end_request (EcfsGridftp *self, Batch *batch, EcfsStream *request, const GError *error)
{
    for (guint i = 0; i < batch->parts->len; i++)
        if (part_at (batch, i)->request == request)
            part_at (batch, i)->request = NULL;
    batch->n_wanted--;
    ecfs_gridftp_finish (self, request, 0, error != NULL ? g_error_copy (error) : NULL);
}

static bool is_filled (const Batch *batch, const EcfsStream *request)
{
    for (guint i = 0; i < batch->parts->len; i++) {
        const Part *part = part_at (batch, i);
        if (part->request == request && part->filled < part->size)
            return false;
    }
    return true;
}

/* The bytes before @to are in their places: tells the sinks. */
static void tell_filled (EcfsGridftp *self, Get *get, uint64_t to)
{
    for (size_t i = get->first; i < get->first + get->n; i++) {
        Part *part = part_at (get->batch, i);
        size_t filled = to <= part->offset ? 0 : (size_t) MIN (to - part->offset, part->size);
        while (part->request != NULL && part->filled < filled) {
            part->filled = MIN (filled, part->filled + STEP_BYTES);
            ecfs_request_filled (part->request, part->range_index, part->filled);
            if (part->filled == part->size && is_filled (get->batch, part->request))
                end_request (self, get->batch, part->request, NULL);
        }
    }
}

/* Moves on over what came ahead of its turn. */
static void close_gaps (Get *get)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (guint i = 0; i < get->ahead->len; i++) {
            Piece piece = g_array_index (get->ahead, Piece, i);
            if (piece.from > get->filled_to)
                continue;
            get->filled_to = MAX (get->filled_to, piece.to);
            g_array_remove_index_fast (get->ahead, i);
            moved = true;
            break;
        }
    }
}

/* False: the server sends what nobody can use. What was told to a sink stays as it is, whatever is sent again. */
static bool take_block (EcfsGridftp *self, Get *get)
{
    const EcfsGridftpMessage *block = &self->message;
    uint64_t from = MAX (block->offset, get->filled_to);
    uint64_t to = MIN (block->offset + block->length, get->end);
    const uint8_t *bytes = self->memory + (size_t) block->block * ECFS_GRIDFTP_BLOCK_BYTES;
    for (size_t i = get->first; i < get->first + get->n && from < to; i++) {
        const Part *part = part_at (get->batch, i);
        uint64_t begin = MAX (from, part->offset), end = MIN (to, part->offset + part->size);
        if (part->request != NULL && begin < end)
            memcpy (part->to + (begin - part->offset), bytes + (begin - block->offset), end - begin);
    }
    EcfsGridftpMessage taken = {.type = ECFS_GRIDFTP_RETURN, .block = block->block};
    ecfs_gridftp_say (self, &taken);
    if (from >= to)
        return true;
    if (get->ahead->len >= MAX_AHEAD)
        return false;
    g_array_append_val (get->ahead, ((Piece){from, to}));
    close_gaps (get);
    tell_filled (self, get, get->filled_to);
    return true;
}

/* Those that nobody wants any more. */
static void end_cancelled (EcfsGridftp *self, Batch *batch)
{
    g_autoptr (GError) cancelled = g_error_new_literal (ECFS_ERROR, ECANCELED, "the read was cancelled");
    for (guint i = 0; i < batch->parts->len; i++) {
        EcfsStream *request = part_at (batch, i)->request;
        if (request != NULL && ecfs_request_cancelled (request))
            end_request (self, batch, request, cancelled);
    }
}

/* Waits for what a GET brings. False: it failed, or brought too little. */
static bool receive (EcfsGridftp *self, Get *get, const char *name, GError **error)
{
    for (;;) {
        EcfsGridftpHeard heard = ecfs_gridftp_hear (self, G_MAXINT64);
        if (heard == ECFS_GRIDFTP_BROKEN)
            return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
        if (heard == ECFS_GRIDFTP_HEARD && self->message.type == ECFS_GRIDFTP_DONE)
            break;
        if (heard == ECFS_GRIDFTP_HEARD && self->message.type == ECFS_GRIDFTP_BLOCK && !take_block (self, get)) {
            ecfs_gridftp_abort (self);
            return ecfs_fail (error, EPROTO, "%s: the server sends pieces without those before them", name);
        }
        end_cancelled (self, get->batch);
        if (get->batch->n_wanted == 0 && get->end - get->filled_to > DRAIN_BYTES) {
            ecfs_gridftp_abort (self);
            return true;
        }
    }
    if (!ecfs_gridftp_outcome (self, name, error))
        return false;
    if (get->filled_to < get->end)
        return ecfs_fail (error, EBADMSG, "%s: ends before the range that was asked for", name);
    return true;
}

/* One GET for as many parts from @first on as follow on each other. Returns the number of parts. */
static size_t get_parts (EcfsGridftp *self, Batch *batch, size_t first, const char *name, GError **error)
{
    Get get = {.batch = batch, .first = first, .n = 1, .offset = part_at (batch, first)->offset};
    get.end = get.offset + part_at (batch, first)->size;
    while (first + get.n < batch->parts->len && part_at (batch, first + get.n)->offset == get.end)
        get.end += part_at (batch, first + get.n++)->size;
    get.filled_to = get.offset;
    get.ahead = g_array_new (FALSE, FALSE, sizeof (Piece));
    ecfs_gridftp_ask (self, ECFS_GRIDFTP_GET, name, NULL, get.offset, get.end - get.offset);
    (void) !receive (self, &get, name, error);
    g_array_unref (get.ahead);
    return get.n;
}

/* Ends the requests that the failed parts were of. */
static void fail_parts (EcfsGridftp *self, Batch *batch, size_t first, size_t n, const GError *error)
{
    for (size_t i = first; i < first + n; i++) {
        const Part *part = part_at (batch, i);
        if (part->request != NULL && part->filled < part->size)
            end_request (self, batch, part->request, error);
    }
}

void ecfs_gridftp_read (EcfsGridftp *self, EcfsStream *request)
{
    g_autofree char *name = g_strdup (request->name);
    Batch batch = {.parts = g_array_new (FALSE, FALSE, sizeof (Part))};
    add_request (&batch, request);
    extend (self, &batch);
    for (size_t i = 0; i < batch.parts->len && batch.n_wanted > 0 && self->broken == NULL;) {
        g_autoptr (GError) error = NULL;
        if (part_at (&batch, i)->request == NULL) {
            i++;
            continue;
        }
        size_t n = get_parts (self, &batch, i, name, &error);
        if (error != NULL)
            fail_parts (self, &batch, i, n, error);
        i += n;
    }
    g_array_unref (batch.parts);
}

bool ecfs_gridftp_peek (EcfsGridftp *self, const char *name, char *to, size_t size, size_t *ret_size, GError **error)
{
    size_t got = 0;
    memset (to, 0, size);
    ecfs_gridftp_ask (self, ECFS_GRIDFTP_GET, name, NULL, 0, size);
    for (;;) {
        EcfsGridftpHeard heard = ecfs_gridftp_hear (self, G_MAXINT64);
        if (heard == ECFS_GRIDFTP_BROKEN)
            return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
        if (heard != ECFS_GRIDFTP_HEARD)
            continue;
        const EcfsGridftpMessage *block = &self->message;
        if (block->type == ECFS_GRIDFTP_DONE)
            break;
        if (block->type != ECFS_GRIDFTP_BLOCK)
            continue;
        if (block->offset < size) {
            size_t n = (size_t) MIN (block->length, size - block->offset);
            memcpy (to + block->offset, self->memory + (size_t) block->block * ECFS_GRIDFTP_BLOCK_BYTES, n);
            got = MAX (got, (size_t) block->offset + n); /* a server may send the same twice */
        }
        ecfs_gridftp_say (self, &(EcfsGridftpMessage){.type = ECFS_GRIDFTP_RETURN, .block = block->block});
    }
    if (!ecfs_gridftp_outcome (self, name, error))
        return false;
    *ret_size = got;
    return true;
}

void ecfs_gridftp_examine (EcfsGridftp *self, EcfsStream *request)
{
    char text[ECFS_MARKER_MAX_SIZE + 1];
    size_t size = 0;
    GError *error = NULL;
    if (ecfs_gridftp_peek (self, ECFS_MARKER_NAME, text, sizeof text, &size, &error))
        ecfs_request_finish_marker (request, text, size);
    else
        ecfs_gridftp_finish (self, request, 0, error);
}

void ecfs_gridftp_size (EcfsGridftp *self, EcfsStream *request)
{
    EcfsFacts facts;
    GError *error = NULL;
    bool ok = ecfs_gridftp_facts (self, request->name, &facts, &error);
    ecfs_gridftp_finish (self, request, ok ? facts.size : 0, error);
}

/* Directories */

typedef struct Listing {
    EcfsStream *request;
    GQueue waiting;   /* names of directories; char *, owned */
    const char *name; /* of the one that is being listed */
    GString *line;    /* the one that is not complete yet */
} Listing;

static void take_line (Listing *listing, const char *line, size_t size)
{
    EcfsFacts facts;
    if (size > 0 && line[size - 1] == '\r')
        size--;
    if (!ecfs_facts_parse (line, size, &facts) || facts.type == ECFS_FACTS_OTHER)
        return;
    g_autofree char *leaf = g_strndup (facts.name, facts.name_bytes);
    g_autofree char *name = listing->name[0] == '\0' ? g_strdup (leaf) : g_strconcat (listing->name, "/", leaf, NULL);
    if (!ecfs_stored_name_valid (name)) /* bounds the depth too */
        return;
    if (facts.type == ECFS_FACTS_FILE)
        ecfs_request_listed (listing->request, name, facts.size, facts.mtime_s);
    else
        g_queue_push_tail (&listing->waiting, g_steal_pointer (&name));
}

/* Takes the lines that are complete. */
static bool take_lines (Listing *listing, const char *bytes, size_t size, GError **error)
{
    const char *end = bytes + size;
    for (const char *feed; (feed = memchr (bytes, '\n', (size_t) (end - bytes))) != NULL; bytes = feed + 1) {
        g_string_append_len (listing->line, bytes, feed - bytes);
        take_line (listing, listing->line->str, listing->line->len);
        g_string_truncate (listing->line, 0);
    }
    g_string_append_len (listing->line, bytes, end - bytes);
    if (listing->line->len > MAX_LINE || listing->waiting.length > MAX_WAITING)
        return ecfs_fail (error, EPROTO, "%s: the server sends a listing without an end", listing->name);
    return true;
}

static bool list_directory (EcfsGridftp *self, Listing *listing, GError **error)
{
    ecfs_gridftp_ask (self, ECFS_GRIDFTP_LIST, listing->name, NULL, 0, 0);
    for (;;) {
        EcfsGridftpHeard heard = ecfs_gridftp_hear (self, G_MAXINT64);
        if (heard == ECFS_GRIDFTP_BROKEN)
            return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
        if (heard == ECFS_GRIDFTP_NEWS && ecfs_request_cancelled (listing->request)) {
            ecfs_gridftp_abort (self);
            return ecfs_fail (error, ECANCELED, "the listing was cancelled");
        }
        if (heard != ECFS_GRIDFTP_HEARD)
            continue;
        if (self->message.type == ECFS_GRIDFTP_DONE)
            break;
        size_t block = self->message.block;
        if (!take_lines (listing, (const char *) self->memory + block * ECFS_GRIDFTP_BLOCK_BYTES, self->message.length,
                         error)) {
            ecfs_gridftp_abort (self);
            return false;
        }
        ecfs_gridftp_say (self, &(EcfsGridftpMessage){.type = ECFS_GRIDFTP_RETURN, .block = (uint32_t) block});
    }
    take_line (listing, listing->line->str, listing->line->len);
    g_string_truncate (listing->line, 0);
    return ecfs_gridftp_outcome (self, listing->name, error);
}

void ecfs_gridftp_list (EcfsGridftp *self, EcfsStream *request)
{
    Listing listing = {.request = request, .waiting = G_QUEUE_INIT, .line = g_string_new (NULL)};
    GError *error = NULL;
    g_queue_push_tail (&listing.waiting, g_strdup (request->name));
    while (error == NULL && listing.waiting.length > 0) {
        g_autofree char *name = g_queue_pop_head (&listing.waiting);
        listing.name = name;
        if (!list_directory (self, &listing, &error) && error->code == ENOENT)
            g_clear_error (&error); /* nothing is there, or not any more */
    }
    g_queue_clear_full (&listing.waiting, g_free);
    g_string_free (listing.line, TRUE);
    ecfs_gridftp_finish (self, request, 0, error);
}
