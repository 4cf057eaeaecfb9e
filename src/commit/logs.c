#include "commit/log_priv.h"

#include "archive/places.h"
#include "archive/places_of.h"
#include "object/placement.h"
#include "util/io.h"

#include <fcntl.h>
#include <unistd.h>

#define N_TRIES  3 /* logs that a record is sent to before it is stored otherwise */
#define N_KEPT   8 /* logs whose content is kept here for who packs them */
#define CLOSE_US G_USEC_PER_SEC

/* A new log */

static bool keeps_logs (const EcfsLogs *self, size_t position, int64_t now_us)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, position);
    return self->avoided_us[position] <= now_us && endpoint->endpoint != NULL &&
           (ecfs_endpoint_capabilities (endpoint->endpoint) & ECFS_CAN_LOG) != 0;
}

static int guarantee (const EcfsLogs *self, const EcfsCodec *codec, const size_t *found)
{
    bool present[ECFS_CODEC_MAX_N] = {false};
    size_t zone[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        present[i] = found[i] != SIZE_MAX;
        zone[i] = present[i] ? ecfs_archive_zone_number (self->archive, found[i]) : 0;
    }
    return ecfs_holders_guarantee (codec, present, zone);
}

/* Places for all copies, at endpoints that keep logs and where nothing is lost by that; false: there are none. */
static bool find_places (EcfsLogs *self, const EcfsCodec *codec, const char *marks, size_t *ret_found)
{
    EcfsObjectPlaces of_object = {.codec = codec,
                                  .stripe_bytes = ECFS_LOG_MAX_BYTES,
                                  .n_endpoints = ecfs_archive_n_endpoints (self->archive),
                                  .marks = marks};
    bool wanted[ECFS_CODEC_MAX_N];
    size_t any[ECFS_CODEC_MAX_N];
    const unsigned n = ecfs_codec_n (codec);
    const unsigned most = ecfs_object_most_per_endpoint (self->archive, &of_object);
    const int64_t now_us = ecfs_now_us ();
    uint64_t lot;
    ecfs_random (&lot, sizeof lot);
    for (unsigned i = 0; i < n; i++) {
        of_object.position[i] = SIZE_MAX;
        wanted[i] = true;
    }
    g_autofree EcfsPlace *places = ecfs_object_places (self->archive, &of_object, ECFS_DOUBTS_NONE);
    g_autofree EcfsPlace *logging = g_memdup2 (places, MAX (of_object.n_endpoints, 1) * sizeof *places);
    ecfs_mutex_lock (&self->lock);
    for (size_t i = 0; i < of_object.n_endpoints; i++)
        logging[i].usable = logging[i].usable && keeps_logs (self, i, now_us);
    ecfs_mutex_unlock (&self->lock);
    (void) ecfs_object_place (&of_object, places, wanted, most, lot, NULL, any); /* told by any */
    return ecfs_object_place (&of_object, logging, wanted, 1, lot, NULL, ret_found) == 0 &&
           guarantee (self, codec, ret_found) >= guarantee (self, codec, any);
}

static void keep_no_more (EcfsLog *self)
{
    ecfs_mutex_lock (&self->lock);
    if (self->content_fd >= 0)
        (void) close (self->content_fd);
    self->content_fd = -1;
    ecfs_mutex_unlock (&self->lock);
}

/* Before the catalog knows it: who finds it there may end it. */
static void make_known (EcfsLogs *self, EcfsLog *log)
{
    ecfs_mutex_lock (&self->lock);
    g_queue_push_tail (&self->known, ecfs_log_ref (log));
    const EcfsLog *oldest = g_queue_peek_nth (&self->known, MAX (g_queue_get_length (&self->known), N_KEPT) - N_KEPT);
    for (GList *l = self->known.head; l != NULL && l->data != oldest; l = l->next)
        keep_no_more (l->data);
    ecfs_mutex_unlock (&self->lock);
}

/* What logs are open by: with other rules, records go into others. g_free (). */
static char *key_of (const EcfsLogOrder *order)
{
    return g_strconcat (ecfs_codec_identity (order->codec), " ", order->marks != NULL ? order->marks : "", NULL);
}

/* Perhaps the catalog has it, or comes to have it: it is closed as one that has ended. */
static void give_up_begun (EcfsLog *self)
{
    keep_no_more (self);
    ecfs_mutex_lock (&self->lock);
    self->has_ended = true;
    ecfs_mutex_unlock (&self->lock);
}

/* NULL with ENOTSUP: too few endpoints keep logs now. */
static EcfsLog *begin_log (EcfsLogs *self, const EcfsLogOrder *order, GError **error)
{
    const EcfsCodec *codec = order->codec;
    size_t found[ECFS_CODEC_MAX_N];
    if (!find_places (self, codec, order->marks, found)) {
        (void) !ecfs_fail (error, ENOTSUP, "too few endpoints keep logs");
        return NULL;
    }
    EcfsLog *log = ecfs_log_new (self, codec, found);
    GError *why = NULL;
    make_known (self, log);
    ecfs_mutex_lock (&log->closing); /* who finds it in the catalog may end it at once */
    bool begun =
        ecfs_seal_open (&log->row->seal, ecfs_archive_keys (self->archive), &log->row->uuid, &log->keys, &why) &&
        ecfs_catalog_log_begin (ecfs_archive_catalog (self->archive), log->row, &log->intent, &why);
    ecfs_mutex_unlock (&log->closing);
    if (!begun) {
        bool is_sure = why->code == EAGAIN;
        why->code = why->code == EAGAIN ? ENOTSUP : why->code; /* an endpoint takes nothing any more */
        g_propagate_error (error, why);
        if (is_sure)
            ecfs_logs_forget (self, &log->row->uuid);
        else
            give_up_begun (log);
        ecfs_log_unref (log);
        return NULL;
    }
    log->tagger = (EcfsTagger){.object = log->row->uuid, .mac = ecfs_seal_tag_mac (log->keys)};
    ecfs_log_start (log);
    ecfs_mutex_lock (&self->lock);
    g_hash_table_insert (self->open, key_of (order), ecfs_log_ref (log));
    ecfs_mutex_unlock (&self->lock);
    return log;
}

/* The open log that takes such records, a reference; NULL: there is none. */
static EcfsLog *find_open (EcfsLogs *self, const EcfsLogOrder *order)
{
    g_autofree char *key = key_of (order);
    ecfs_mutex_lock (&self->lock);
    EcfsLog *log = g_hash_table_lookup (self->open, key);
    if (log != NULL)
        (void) ecfs_log_ref (log);
    ecfs_mutex_unlock (&self->lock);
    return log;
}

/* Appending */

/* A place for a record; false: the log takes it no more. */
static bool reserve (EcfsLog *self, uint64_t bytes, uint64_t *ret_from)
{
    ecfs_mutex_lock (&self->lock);
    if (self->n_records == ECFS_RECORDS_MAX || bytes > ECFS_LOG_MAX_BYTES - self->end)
        ecfs_log_end_locked (self);
    bool takes = !self->has_ended;
    *ret_from = self->end;
    self->end += takes ? bytes : 0;
    self->n_records += takes;
    ecfs_mutex_unlock (&self->lock);
    return takes;
}

/* What is kept of the content is for who packs it. */
static void keep (EcfsLog *self, const GByteArray *bytes, uint64_t from)
{
    ecfs_mutex_lock (&self->lock);
    if (self->content_fd >= 0 && ecfs_pwrite_all (self->content_fd, bytes->data, bytes->len, from) < 0) {
        (void) close (self->content_fd);
        self->content_fd = -1;
    }
    ecfs_mutex_unlock (&self->lock);
}

static size_t record_bytes (const EcfsLogRecord *record)
{
    size_t bytes = ecfs_log_content_offset (record) + record->content_bytes;
    return (bytes + ECFS_LOG_BLOCK_BYTES - 1) / ECFS_LOG_BLOCK_BYTES * ECFS_LOG_BLOCK_BYTES;
}

/* Gives the record its place and sends it; false: the log takes it no more. */
static bool put (EcfsLog *self, const EcfsLogOrder *order, EcfsLogPlace *ret_place)
{
    EcfsLogRecord record = order->record;
    const size_t size = record_bytes (&record);
    record.epoch = self->row->epoch;
    ecfs_mutex_lock (&self->sending);
    uint64_t from;
    bool takes = reserve (self, size, &from);
    if (takes) {
        g_autoptr (GByteArray) bytes = ecfs_log_record_format (&record, &self->row->uuid, from);
        keep (self, bytes, from);
        ecfs_log_send (self, bytes, from);
    }
    ecfs_mutex_unlock (&self->sending);
    *ret_place = (EcfsLogPlace){.log = self,
                                .from = from,
                                .logged = {.log = self->row->uuid,
                                           .intent = self->intent,
                                           .offset = from + ecfs_log_content_offset (&record),
                                           .end = from + size,
                                           .generation = record.sequence}};
    memcpy (ret_place->logged.sha256, order->sha256, ECFS_SHA256_SIZE);
    return takes;
}

/* Finds a log that takes the record, or begins one, and sends it. The place has the reference. */
static bool place (EcfsLogs *self, const EcfsLogOrder *order, EcfsLogPlace *ret_place, GError **error)
{
    EcfsLog *log = find_open (self, order);
    if (log != NULL && put (log, order, ret_place))
        return true;
    ecfs_log_unref (log);
    ecfs_mutex_lock (&self->beginning); /* who comes second takes what the first began */
    log = find_open (self, order);
    bool is_put = log != NULL && put (log, order, ret_place);
    if (!is_put) {
        ecfs_log_unref (log);
        log = begin_log (self, order, error);
        is_put = log != NULL && put (log, order, ret_place);
        if (log != NULL && !is_put) { /* its copies failed at once */
            ecfs_log_unref (log);
            (void) !ecfs_fail (error, EAGAIN, "the log ended before it had anything");
        }
    }
    ecfs_mutex_unlock (&self->beginning);
    return is_put;
}

/* Publishing */

/* Moves on behind records that were given up. */
static void skip_locked (EcfsLog *self) ECFS_REQUIRES (self->lock)
{
    bool again = true;
    while (again) {
        again = false;
        for (guint i = 0; i + 1 < self->given_up->len && !again; i += 2) {
            if (g_array_index (self->given_up, uint64_t, i) != self->settled)
                continue;
            self->settled = g_array_index (self->given_up, uint64_t, i + 1);
            g_array_remove_range (self->given_up, i, 2);
            again = true;
        }
    }
    ecfs_cond_broadcast (&self->moved);
}

void ecfs_logs_give_up (EcfsLogPlace *place)
{
    EcfsLog *log = g_steal_pointer (&place->log);
    ecfs_mutex_lock (&log->lock);
    g_array_append_val (log->given_up, place->from);
    g_array_append_val (log->given_up, place->logged.end);
    skip_locked (log);
    ecfs_mutex_unlock (&log->lock);
    ecfs_log_unref (log);
}

bool ecfs_logs_append (EcfsLogs *self, const EcfsLogOrder *order, EcfsLogPlace *ret_place, GError **error)
{
    size_t position[ECFS_CODEC_MAX_N];
    for (unsigned attempt = 0; attempt < N_TRIES; attempt++) {
        LogSurvey survey;
        g_autoptr (GError) why = NULL;
        if (!place (self, order, ret_place, &why)) {
            if (why->code == EAGAIN)
                continue;
            g_propagate_error (error, g_steal_pointer (&why));
            return false;
        }
        EcfsLog *log = ret_place->log;
        if (!ecfs_log_await (log, order, ret_place->logged.end, &survey, error)) {
            ecfs_logs_give_up (ret_place);
            return false;
        }
        for (unsigned i = 0; i < log->n; i++)
            position[i] = log->copies[i].position;
        ret_place->full = survey.n_stored == log->n;
        if (ret_place->full || order->suffices (order->user, survey.stored, position))
            return true;
        ecfs_logs_give_up (ret_place);
    }
    return ecfs_fail (error, ENOTSUP, "logs ended before they had it");
}

void ecfs_logs_await_turn (const EcfsLogPlace *place)
{
    EcfsLog *log = place->log;
    ecfs_mutex_lock (&log->lock);
    while (log->settled != place->from) /* those before wait for nothing but their own, in turn */
        (void) ecfs_cond_wait_until (&log->moved, &log->lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&log->lock);
}

/* The catalog is to know of a copy that lacks something before anything that it lacks is content. */
static bool tell_cut (EcfsLog *self, GError **error)
{
    for (unsigned i = 0; i < self->n; i++) {
        LogCopy *copy = &self->copies[i];
        ecfs_mutex_lock (&self->lock);
        bool news = copy->is_cut && !copy->is_told;
        ecfs_mutex_unlock (&self->lock);
        if (!news)
            continue;
        if (!ecfs_catalog_log_stripe_ends (ecfs_archive_catalog (self->logs->archive), &self->row->uuid, i, copy->good,
                                           error)) {
            (*error)->code = (*error)->code == ESTALE ? EAGAIN : (*error)->code; /* who leads has packed it */
            return false;
        }
        copy->is_told = true;
    }
    return true;
}

static void move_on (void *user)
{
    const EcfsLogPlace *place = user;
    ecfs_mutex_lock (&place->log->lock);
    place->log->settled = place->logged.end;
    skip_locked (place->log);
    ecfs_mutex_unlock (&place->log->lock);
}

bool ecfs_logs_publish (EcfsLogPlace *place, EcfsPublish *publish, bool *ret_kept, GError **error)
{
    EcfsLog *log = place->log;
    *ret_kept = false;
    publish->logged = &place->logged;
    publish->full = place->full;
    publish->made = move_on;
    publish->user = place;
    bool durable = tell_cut (log, error) &&
                   ecfs_catalog_publish (ecfs_archive_catalog (log->logs->archive), publish, ret_kept, error);
    ecfs_mutex_lock (&log->lock);
    bool has_moved = log->settled > place->from;
    if (!durable && *error != NULL && (*error)->code == EAGAIN)
        ecfs_log_end_locked (log); /* who leads packs it, or has */
    ecfs_mutex_unlock (&log->lock);
    if (!has_moved)
        move_on (place); /* it came to nothing */
    ecfs_log_unref (g_steal_pointer (&place->log));
    return durable;
}

/* All logs */

static GList *find_known_locked (EcfsLogs *self, const EcfsUuid *uuid) ECFS_REQUIRES (self->lock)
{
    for (GList *l = self->known.head; l != NULL; l = l->next)
        if (ecfs_uuid_equal (&((const EcfsLog *) l->data)->row->uuid, uuid))
            return l;
    return NULL;
}

/* A reference; NULL: it is not known here. */
static EcfsLog *find_known (EcfsLogs *self, const EcfsUuid *uuid)
{
    ecfs_mutex_lock (&self->lock);
    GList *link = find_known_locked (self, uuid);
    EcfsLog *log = link == NULL ? NULL : ecfs_log_ref (link->data);
    ecfs_mutex_unlock (&self->lock);
    return log;
}

void ecfs_logs_forget (EcfsLogs *self, const EcfsUuid *uuid)
{
    ecfs_mutex_lock (&self->lock);
    GList *link = find_known_locked (self, uuid);
    EcfsLog *log = link == NULL ? NULL : link->data;
    if (link != NULL)
        g_queue_delete_link (&self->known, link);
    ecfs_mutex_unlock (&self->lock);
    ecfs_log_unref (log);
}

/* Tells the catalog, once nothing more comes of the log. What is of no more use here then is forgotten. */
static void close_ended (EcfsLog *self)
{
    g_autoptr (GError) error = NULL;
    ecfs_mutex_lock (&self->closing);
    ecfs_mutex_lock (&self->lock);
    bool over = self->has_ended && self->settled == self->end;
    bool is_kept = self->content_fd >= 0;
    ecfs_mutex_unlock (&self->lock);
    if (over && !self->is_closed)
        self->is_closed = ecfs_catalog_log_close (ecfs_archive_catalog (self->logs->archive), &self->row->uuid, &error);
    bool closed = self->is_closed;
    ecfs_mutex_unlock (&self->closing);
    if (error != NULL)
        g_info ("a log is open for others still: %s", error->message); /* tried again */
    if (closed && !is_kept)
        ecfs_logs_forget (self->logs, &self->row->uuid);
}

static void close_all_ended (EcfsLogs *self)
{
    g_autoptr (GPtrArray) all = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_log_unref);
    ecfs_mutex_lock (&self->lock);
    for (GList *l = self->known.head; l != NULL; l = l->next)
        g_ptr_array_add (all, ecfs_log_ref (l->data));
    ecfs_mutex_unlock (&self->lock);
    for (guint i = 0; i < all->len; i++)
        close_ended (g_ptr_array_index (all, i));
}

/* An endpoint that is to be left lets nothing go that grows. */
static bool is_in_the_way (const EcfsLog *self)
{
    for (unsigned i = 0; i < self->n; i++)
        if (ecfs_archive_endpoint (self->logs->archive, self->copies[i].position)->state != ECFS_ENDPOINT_ACTIVE)
            return true;
    return false;
}

static void end_old (EcfsLogs *self, int64_t age_us)
{
    const int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&self->lock);
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, self->open);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        EcfsLog *log = value;
        ecfs_mutex_lock (&log->lock);
        if (now_us - log->begun_us >= age_us || is_in_the_way (log))
            ecfs_log_end_locked (log);
        bool ended = log->has_ended;
        ecfs_mutex_unlock (&log->lock);
        if (ended)
            g_hash_table_iter_remove (&iter);
    }
    ecfs_mutex_unlock (&self->lock);
}

/* A log may end by itself. */
static void look (void *user)
{
    EcfsLogs *self = user;
    end_old (self, ecfs_archive_config (self->archive)->pack_after_us);
    close_all_ended (self);
}

EcfsLogs *ecfs_logs_start (EcfsArchive *archive)
{
    EcfsLogs *self = g_new0 (EcfsLogs, 1);
    self->archive = archive;
    ecfs_mutex_init (&self->lock);
    ecfs_mutex_init (&self->beginning);
    ecfs_mutex_init (&self->packing);
    self->open = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify) ecfs_log_unref);
    self->ticker = ecfs_ticker_start (CLOSE_US, look, self);
    return self;
}

void ecfs_logs_stop (EcfsLogs *self)
{
    ecfs_ticker_stop (g_steal_pointer (&self->ticker));
    end_old (self, 0);
    close_all_ended (self);
}

void ecfs_logs_free (EcfsLogs *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->open);
    g_queue_clear_full (&self->known, (GDestroyNotify) ecfs_log_unref);
    ecfs_mutex_clear (&self->packing);
    ecfs_mutex_clear (&self->beginning);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

void ecfs_logs_end (EcfsLogs *self, const EcfsUuid *uuid)
{
    EcfsLog *log = find_known (self, uuid);
    if (log == NULL)
        return;
    ecfs_mutex_lock (&log->lock);
    ecfs_log_end_locked (log);
    while (log->settled != log->end) /* each record is published or given up, and soon */
        (void) ecfs_cond_wait_until (&log->moved, &log->lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&log->lock);
    close_ended (log);
    ecfs_log_unref (log);
}

int ecfs_logs_content (EcfsLogs *self, const EcfsUuid *uuid)
{
    EcfsLog *log = find_known (self, uuid);
    if (log == NULL)
        return -1;
    ecfs_mutex_lock (&log->lock);
    int fd = log->content_fd < 0 ? -1 : fcntl (log->content_fd, F_DUPFD_CLOEXEC, 0);
    ecfs_mutex_unlock (&log->lock);
    ecfs_log_unref (log);
    return fd;
}

EcfsMutex *ecfs_logs_packing_lock (EcfsLogs *self)
{
    return &self->packing;
}
