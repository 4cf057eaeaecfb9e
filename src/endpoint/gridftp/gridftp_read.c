/* Requests of gridftp drivers that read: files, markers, sizes, directories. */
#include "endpoint/gridftp/gridftp_priv.h"

#include <inttypes.h>
#include <string.h>

#define STEP_BYTES  (64 * 1024)           /* of a file between two calls of the sink */
#define BATCH_BYTES (8 * 1024 * 1024)     /* asked for together */
#define DRAIN_BYTES (1024 * 1024)         /* rather read to the end than aborted: that ends the connection */
#define AHEAD_BYTES (64 * 1024 * 1024)    /* at most asked for beyond what is wanted so far */
#define PACE_BYTES  (1024 * 1024)         /* of a GET that tell how fast it is */
#define GAP_BYTES   (4 * 1024 * 1024)     /* at most read over */
#define PARKED_US   (15 * G_USEC_PER_SEC) /* a GET that nobody wants to go on is ended after this */
#define MAX_LINE    (16 * 1024)           /* of a listing */
#define MAX_AHEAD   1024                  /* pieces of a GET with gaps before them; streams are a few blocks apart */

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

/*
 * A GET goes on beyond what is wanted where the one before it was of the bytes before: each begins with a data
 * connection, whose handshake takes what megabytes take. Requests that follow join it while it runs. What came and
 * nobody wants yet stays in blocks that the helper does not get back, so the server is not read from any further.
 */
typedef struct Get {
    Batch *batch;
    size_t first, n; /* of the parts; the last is the last of the batch where the GET goes on */
    uint64_t offset;
    uint64_t wanted_to; /* end of the last part */
    uint64_t end;       /* what was asked for; the file may end before */
    uint64_t filled_to; /* without gaps */
    GArray *ahead;      /* of Piece */
    EcfsGridftpMessage held[ECFS_GRIDFTP_N_BLOCKS];
    unsigned n_held;
    bool done;         /* no more will come */
    bool draining;     /* nobody wants what is to come */
    int64_t parked_us; /* since when nobody wants anything; 0: somebody does */
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

/* Whether one GET brings @request too, of which nothing is asked for beyond @end. */
static bool continues (const EcfsGridftp *self, EcfsStream *request, const char *name, uint64_t from, uint64_t end)
{
    const EcfsRange *first = &request->ranges[0], *last = &request->ranges[request->n_ranges - 1];
    return request->kind == ECFS_REQUEST_READ && g_str_equal (request->name, name) && first->offset >= from &&
           first->offset - from <= self->pace.gap_bytes && last->offset + last->size <= end &&
           !ecfs_request_cancelled (request);
}

/* Takes what is asked of the file behind; a request that is not like that is begun next. */
static void extend (EcfsGridftp *self, Batch *batch, const char *name, uint64_t begin, uint64_t end)
{
    while (self->next == NULL) {
        const Part *last = part_at (batch, batch->parts->len - 1);
        uint64_t wanted_to = last->offset + last->size;
        if (wanted_to > begin && wanted_to - begin >= BATCH_BYTES)
            return;
        EcfsStream *request = ecfs_slot_take (self->slot);
        if (request == NULL)
            return;
        if (continues (self, request, name, wanted_to, end))
            add_request (batch, request);
        else
            self->next = request;
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

/* Copies what @block has between @from and @to into the parts from the @first on. */
static void place (const EcfsGridftp *self, const Get *get, size_t first, const EcfsGridftpMessage *block,
                   uint64_t from, uint64_t to)
{
    const uint8_t *bytes = self->memory + (size_t) block->block * ECFS_GRIDFTP_BLOCK_BYTES;
    for (size_t i = first; i < get->first + get->n && from < to; i++) {
        const Part *part = part_at (get->batch, i);
        uint64_t begin = MAX (from, part->offset), end = MIN (to, part->offset + part->size);
        if (part->request != NULL && begin < end)
            memcpy (part->to + (begin - part->offset), bytes + (begin - block->offset), end - begin);
    }
}

/* How much comes while a GET begins: what is less is rather read in vain. */
static void note_pace (EcfsGridftp *self)
{
    EcfsGridftpPace *pace = &self->pace;
    int64_t now_us = ecfs_now_us ();
    if (pace->begun_us == 0) {
        pace->begun_us = now_us;
        pace->came_bytes = 0;
        return;
    }
    uint64_t before = pace->came_bytes;
    pace->came_bytes += self->message.length;
    if (before >= PACE_BYTES || pace->came_bytes < PACE_BYTES || !ecfs_gridftp_reads_ahead (self->config))
        return;
    double rate = (double) pace->came_bytes / (double) MAX (now_us - pace->begun_us, 1);
    double meanwhile = rate * (double) (pace->begun_us - self->asked_us);
    pace->gap_bytes = (3 * pace->gap_bytes + (uint64_t) MIN (meanwhile, GAP_BYTES)) / 4;
}

/* Whether somebody waits for what the GET is to bring. */
static bool is_wanted (const Get *get)
{
    for (size_t i = get->first; i < get->first + get->n; i++) {
        const Part *part = part_at (get->batch, i);
        if (part->request != NULL && part->filled < part->size)
            return true;
    }
    return false;
}

static void give_back (EcfsGridftp *self, const EcfsGridftpMessage *block)
{
    EcfsGridftpMessage taken = {.type = ECFS_GRIDFTP_RETURN, .block = block->block};
    ecfs_gridftp_say (self, &taken);
}

/* Keeps the last block heard where it goes beyond what is wanted. */
static void keep_or_give_back (EcfsGridftp *self, Get *get)
{
    const EcfsGridftpMessage *block = &self->message;
    bool keeps = !get->draining && block->offset + block->length > get->wanted_to && get->end > get->wanted_to;
    if (keeps && get->n_held < ECFS_GRIDFTP_N_BLOCKS)
        get->held[get->n_held++] = *block;
    else
        give_back (self, block);
}

/* False: the server sends what nobody can use. What was told to a sink stays as it is, whatever is sent again. */
static bool take_block (EcfsGridftp *self, Get *get)
{
    const EcfsGridftpMessage *block = &self->message;
    uint64_t from = MAX (block->offset, get->filled_to);
    uint64_t to = MIN (block->offset + block->length, get->end);
    place (self, get, get->first, block, from, to);
    keep_or_give_back (self, get);
    if (from >= to)
        return true;
    if (get->ahead->len >= MAX_AHEAD)
        return false;
    g_array_append_val (get->ahead, ((Piece){from, to}));
    close_gaps (get);
    tell_filled (self, get, get->filled_to);
    return true;
}

/* The parts from the @first on are new: fills them with what came before they were wanted. */
static void fill_from_held (EcfsGridftp *self, Get *get, size_t first)
{
    unsigned n_kept = 0;
    for (unsigned i = 0; i < get->n_held; i++) {
        EcfsGridftpMessage block = get->held[i];
        place (self, get, first, &block, block.offset, block.offset + block.length);
        if (block.offset + block.length > get->wanted_to)
            get->held[n_kept++] = block;
        else
            give_back (self, &block);
    }
    get->n_held = n_kept;
    tell_filled (self, get, get->filled_to);
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

/* Whether the GET may bring what is still to be asked for. */
static bool may_go_on (const EcfsGridftp *self, const Get *get)
{
    return !get->draining && get->end > get->wanted_to && self->next == NULL && self->writes.length == 0 &&
           (!get->done || get->n_held > 0);
}

/* Takes requests that the GET brings too. */
static void join_more (EcfsGridftp *self, Get *get, const char *name)
{
    size_t first = get->batch->parts->len;
    extend (self, get->batch, name, get->filled_to, get->end);
    if (get->batch->parts->len == first)
        return;
    const Part *last = part_at (get->batch, get->batch->parts->len - 1);
    get->n = get->batch->parts->len - get->first;
    get->wanted_to = last->offset + last->size;
    fill_from_held (self, get, first);
}

/* Nobody wants what a GET is still to bring. False: it was aborted. */
static bool let_end (EcfsGridftp *self, Get *get)
{
    if (get->end - get->filled_to > MAX (DRAIN_BYTES, 4 * self->pace.gap_bytes)) {
        ecfs_gridftp_abort (self);
        return false;
    }
    get->draining = true;
    while (get->n_held > 0)
        give_back (self, &get->held[--get->n_held]);
    return true;
}

/* Looks at who wants what of a GET. False: nobody wants more, and it is over. */
static bool look_after (EcfsGridftp *self, Get *get, const char *name)
{
    end_cancelled (self, get->batch);
    if (may_go_on (self, get))
        join_more (self, get, name);
    if (get->draining || is_wanted (get)) {
        if (get->parked_us != 0 && !get->done)
            ecfs_slot_owed (self->slot, ECFS_OWES_ANSWER);
        get->parked_us = 0;
        return !get->done;
    }
    int64_t now_us = ecfs_now_us ();
    if (get->parked_us == 0)
        get->parked_us = now_us;
    if (!may_go_on (self, get) || now_us - get->parked_us > PARKED_US)
        return !get->done && let_end (self, get);
    ecfs_slot_owed (self->slot, ECFS_OWES_NOTHING);
    return true;
}

/* Waits for what a GET brings. False: it failed, or brought too little. */
static bool receive (EcfsGridftp *self, Get *get, const char *name, GError **error)
{
    while (look_after (self, get, name)) {
        EcfsGridftpHeard heard =
            ecfs_gridftp_hear (self, get->parked_us == 0 ? G_MAXINT64 : get->parked_us + PARKED_US);
        if (heard == ECFS_GRIDFTP_BROKEN)
            return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
        if (heard == ECFS_GRIDFTP_HEARD && self->message.type == ECFS_GRIDFTP_DONE) {
            get->done = true;
            if (is_wanted (get) && !ecfs_gridftp_outcome (self, name, error))
                return false;
            /* Where all that was wanted is there, a connection that is lost behind it is lost while idle; what follows
             * is asked for anew. */
            get->draining = get->draining || self->message.code != ECFS_GRIDFTP_OK;
        }
        if (heard == ECFS_GRIDFTP_HEARD && self->message.type == ECFS_GRIDFTP_BLOCK) {
            note_pace (self);
            if (!take_block (self, get)) {
                ecfs_gridftp_abort (self);
                return ecfs_fail (error, EPROTO, "%s: the server sends pieces, but not those before them", name);
            }
        }
    }
    if (is_wanted (get))
        return ecfs_fail (error, EBADMSG, "%s: ends before the range that was asked for", name);
    return true;
}
/* How many bytes beyond what is wanted, from @offset to @to, a GET asks for; notes what is read in a row. */
static uint64_t plan_ahead (EcfsGridftp *self, const char *name, uint64_t offset)
{
    EcfsGridftpPace *pace = &self->pace;
    bool follows =
        g_strcmp0 (pace->name, name) == 0 && offset >= pace->read_to && offset - pace->read_to <= pace->gap_bytes;
    if (!follows) {
        g_free (pace->name);
        pace->name = g_strdup (name);
        pace->run_bytes = 0;
    }
    return ecfs_gridftp_reads_ahead (self->config) && self->writes.length == 0 ? MIN (pace->run_bytes, AHEAD_BYTES) : 0;
}

/* One GET for as many parts from @first on as follow on each other. Returns the number of parts. */
static size_t get_parts (EcfsGridftp *self, Batch *batch, size_t first, const char *name, GError **error)
{
    Get get = {.batch = batch, .first = first, .n = 1, .offset = part_at (batch, first)->offset};
    get.wanted_to = get.offset + part_at (batch, first)->size;
    while (first + get.n < batch->parts->len) {
        const Part *next = part_at (batch, first + get.n);
        if (next->offset - get.wanted_to > self->pace.gap_bytes)
            break;
        get.wanted_to = next->offset + next->size;
        get.n++;
    }
    uint64_t ahead = plan_ahead (self, name, get.offset);
    get.end = get.wanted_to + (first + get.n == batch->parts->len ? ahead : 0);
    get.filled_to = get.offset;
    get.ahead = g_array_new (FALSE, FALSE, sizeof (Piece));
    self->pace.begun_us = 0;
    ecfs_gridftp_ask (self, ECFS_GRIDFTP_GET, name, NULL, get.offset, get.end - get.offset);
    (void) !receive (self, &get, name, error);
    self->pace.read_to = get.wanted_to;
    self->pace.run_bytes += get.wanted_to - get.offset;
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
    extend (self, &batch, name, request->ranges[0].offset, UINT64_MAX);
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
    if (listing->line->len > MAX_LINE || listing->waiting.length > ECFS_LIST_MAX_DIRECTORIES)
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
