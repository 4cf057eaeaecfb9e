/* Copies of journal files at the endpoints, and which of them are believed. */
#include "recover/files.h"

#include "util/bytes.h"
#include "util/sha256.h"

void ecfs_recover_copy_clear (gpointer data)
{
    EcfsRecoverCopy *self = data;
    g_clear_pointer (&self->digest, g_free);
    g_clear_pointer (&self->rows, g_ptr_array_unref);
}

void ecfs_recover_found_free (gpointer data)
{
    EcfsRecoverFound *self = data;
    g_free (self->name);
    g_array_unref (self->copies);
    g_free (self);
}

/* Words */

/* How many endpoints cannot be asked, and may have anything. */
static size_t n_silent (const EcfsRecovering *self)
{
    size_t n_words = 0;
    for (size_t i = 0; i < self->n_places; i++)
        n_words += !self->places[i].distrusted && !self->places[i].silent;
    return self->n_known - MIN (n_words, self->n_known);
}

size_t ecfs_recover_least_words (const EcfsRecovering *self)
{
    return MAX (self->n_copies, n_silent (self) + 1) - n_silent (self);
}

/* Endpoints whose word counts, by what they say. */
typedef struct Tally {
    size_t n_same;
    size_t n_broken;
    size_t n_gapped;
    size_t n_short;  /* their journals end before it, … */
    size_t n_marked; /* … and the markers of these tell that they went on */
    size_t n_against;
} Tally;

static void tally_place (Tally *tally, const EcfsRecoverPlace *place, const EcfsJournalFile *file, EcfsRecoverSaid said)
{
    if (place->distrusted || place->silent)
        return;
    tally->n_same += said == ECFS_RECOVER_SAME;
    tally->n_broken += said == ECFS_RECOVER_BROKEN;
    tally->n_against += said == ECFS_RECOVER_OTHER;
    if (said != ECFS_RECOVER_NOTHING)
        return;
    bool is_short = file->kind == ECFS_JOURNAL_SEGMENT && place->last < file->first;
    tally->n_gapped += place->gapped;
    tally->n_short += !place->gapped && is_short;
    tally->n_marked +=
        !place->gapped && is_short && place->marker.epoch >= file->epoch && place->marker.sequence >= file->first;
    tally->n_against += !place->gapped && !is_short;
}

/*
 * As many as `ecfs wait` asks for, where those count as well that cannot be asked. Of few endpoints a single one that
 * has lost it would then outvote all others. So one that shows that it has lost something counts as one that cannot be
 * asked, and more endpoints count more than fewer; but not where so many have the whole and not this that it cannot
 * have been safe.
 */
bool ecfs_recover_is_enough (const EcfsRecovering *self, const EcfsJournalFile *file, const EcfsRecoverSaid *said)
{
    Tally tally = {.n_same = 0};
    for (size_t i = 0; i < self->n_places; i++)
        tally_place (&tally, &self->places[i], file, said[i]);
    size_t n_without = tally.n_short + tally.n_against;
    if (tally.n_same == 0)
        return false;
    if (tally.n_same + tally.n_broken >= ecfs_recover_least_words (self))
        return true;
    if (n_without >= self->n_copies || tally.n_against >= tally.n_same)
        return false;
    return tally.n_same + tally.n_broken + tally.n_gapped + tally.n_marked >= ecfs_recover_least_words (self) ||
           tally.n_same > n_without || (tally.n_same > 1 && tally.n_same >= n_without && tally.n_against == 0);
}

void ecfs_recover_doubt (EcfsRecovering *self, size_t position, const char *what)
{
    EcfsRecoverPlace *place = &self->places[position];
    if (place->distrusted || place->n_doubts++ > 2)
        return;
    ecfs_recover_tell (self, "endpoint %s reports %s, but too few other endpoints do: it is not believed", place->name,
                       what);
}

void ecfs_recover_doubt_all (EcfsRecovering *self, const EcfsRecoverFound *found, const char *besides)
{
    for (guint i = 0; i < found->copies->len; i++) {
        const EcfsRecoverCopy *copy = &g_array_index (found->copies, EcfsRecoverCopy, i);
        if (copy->tried && copy->digest != NULL && g_strcmp0 (copy->digest, besides) != 0)
            ecfs_recover_doubt (self, copy->position, found->name);
    }
}

/* Reading */

/* Whether the file is what its name says, of this archive. */
static bool is_as_named (const EcfsRecovering *self, const EcfsRecoverFound *found, const EcfsJournalFile *file,
                         GError **error)
{
    char name[ECFS_JOURNAL_NAME_SIZE];
    ecfs_journal_file_name (file, name);
    if (!ecfs_uuid_equal (&file->archive, &self->archive))
        return ecfs_fail (error, EBADMSG, "it is of another archive");
    return g_str_equal (name, found->name) || ecfs_fail (error, EBADMSG, "it is another file, renamed");
}

typedef struct Reading {
    EcfsRecovering *recovering;
    const EcfsRecoverFound *found;
    EcfsRecoverCopy *copy;
    bool only_authentic; /* whether it is, with its @name; no more is read of it */
    bool is_authentic;
    GError *error;
} Reading;

/* Of what a file says beside its name; its bytes are others each time that it is sealed. */
static char *digest_of (const EcfsJournalFile *file, const GPtrArray *rows)
{
    uint8_t digest[ECFS_SHA256_SIZE];
    g_autoptr (EcfsSha256) sum = ecfs_sha256_new ();
    g_autoptr (GByteArray) numbers = g_byte_array_new ();
    ecfs_append_le (numbers, (uint64_t) file->time_ns, 8);
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        ecfs_append_le (numbers, row->sequence, 8);
        ecfs_append_le (numbers, (uint64_t) row->time_ns, 8);
        ecfs_append_le (numbers, row->record->len, 4);
        ecfs_sha256_update (sum, numbers->data, numbers->len);
        ecfs_sha256_update (sum, row->record->data, row->record->len);
        g_byte_array_set_size (numbers, 0);
    }
    ecfs_sha256_update (sum, numbers->data, numbers->len);
    ecfs_sha256_end (sum, digest);
    return g_base64_encode (digest, sizeof digest);
}

static void read_copy (void *data)
{
    Reading *self = data;
    EcfsRecoverCopy *copy = self->copy;
    EcfsJournalFile file;
    EcfsRecoverPlace *place = &self->recovering->places[copy->position];
    g_autoptr (GByteArray) bytes = ecfs_recover_read (place, self->found->name, copy->size, &self->error);
    if (self->only_authentic) {
        self->is_authentic =
            bytes != NULL &&
            ecfs_journal_file_is_authentic (bytes->data, bytes->len, self->recovering->keys, &file, &self->error) &&
            is_as_named (self->recovering, self->found, &file, &self->error);
        return;
    }
    g_autoptr (GPtrArray) rows =
        bytes == NULL ? NULL
                      : ecfs_journal_file_parse (bytes->data, bytes->len, self->recovering->keys, &file, &self->error);
    copy->tried = true;
    if (rows == NULL || !is_as_named (self->recovering, self->found, &file, &self->error))
        return;
    copy->rows = g_steal_pointer (&rows);
    copy->time_ns = file.time_ns;
    copy->digest = digest_of (&file, copy->rows);
}

/* Reads them side by side. */
static void run_readings (EcfsRecovering *self, Reading *readings, size_t n_readings)
{
    EcfsWorkers *workers = n_readings > 1 ? ecfs_workers_new ("ecfs-recover", (unsigned) MIN (n_readings, 16)) : NULL;
    for (size_t i = 0; i < n_readings; i++)
        if (workers == NULL)
            read_copy (&readings[i]);
        else
            ecfs_workers_push (workers, read_copy, &readings[i]);
    ecfs_workers_free (workers);
    for (size_t i = 0; i < n_readings; i++)
        if (readings[i].error != NULL) {
            ecfs_recover_tell (self, "endpoint %s: %s cannot be used: %s",
                               self->places[readings[i].copy->position].name, readings[i].found->name,
                               readings[i].error->message);
            self->places[readings[i].copy->position].has_false = true;
            self->has_sealed = self->has_sealed || readings[i].error->code == ENOKEY;
            self->has_vanished = self->has_vanished || readings[i].error->code == ENOENT;
            g_error_free (readings[i].error);
        }
}

void ecfs_recover_read_copies (EcfsRecovering *self, EcfsRecoverFound *found, size_t n_wanted)
{
    g_autofree Reading *readings = g_new0 (Reading, found->copies->len);
    size_t n_readings = 0;
    for (guint i = 0; i < found->copies->len && n_readings < n_wanted; i++) {
        EcfsRecoverCopy *copy = &g_array_index (found->copies, EcfsRecoverCopy, i);
        if (!copy->tried && ecfs_recover_reads (self, &self->places[copy->position]))
            readings[n_readings++] = (Reading){.recovering = self, .found = found, .copy = copy};
    }
    run_readings (self, readings, n_readings);
}

bool ecfs_recover_is_authentic (EcfsRecovering *self, EcfsRecoverFound *found, guint number)
{
    EcfsRecoverCopy *copy = &g_array_index (found->copies, EcfsRecoverCopy, number);
    Reading one = {.recovering = self, .found = found, .copy = copy, .only_authentic = true};
    if (!ecfs_recover_reads (self, &self->places[copy->position]))
        return false;
    if (copy->tried)
        return copy->digest != NULL;
    run_readings (self, &one, 1);
    return one.is_authentic;
}

/* What most endpoints' copies of a file say. */
typedef struct Version {
    EcfsRecoverCopy *copy; /* one of them; NULL: there is none */
    size_t n_copies;       /* that are the same */
    size_t n_second;       /* copies of the next */
    size_t n_broken;       /* copies that cannot be read, and may have been of any */
    size_t n_left;         /* that were not read yet */
    bool is_believed;
} Version;

/* @made_ns: only those of this time; NULL: of any. */
static Version best_version (EcfsRecovering *self, const EcfsRecoverFound *found, const int64_t *made_ns)
{
    Version best = {.copy = NULL};
    for (guint i = 0; i < found->copies->len; i++) {
        EcfsRecoverCopy *one = &g_array_index (found->copies, EcfsRecoverCopy, i);
        size_t n_same = 0;
        bool is_first = true, is_believed = false;
        if (!ecfs_recover_reads (self, &self->places[one->position]))
            continue;
        best.n_left += !one->tried;
        best.n_broken += one->tried && one->digest == NULL;
        if (one->digest == NULL || (made_ns != NULL && one->time_ns != *made_ns))
            continue;
        for (guint j = 0; j < found->copies->len; j++) {
            const EcfsRecoverCopy *other = &g_array_index (found->copies, EcfsRecoverCopy, j);
            if (!ecfs_recover_reads (self, &self->places[other->position]) ||
                g_strcmp0 (other->digest, one->digest) != 0)
                continue;
            is_first = is_first && j >= i;
            n_same++;
            is_believed = is_believed || self->places[other->position].believed;
        }
        if (!is_first)
            continue;
        bool better = best.copy == NULL || is_believed > best.is_believed ||
                      (is_believed == best.is_believed && n_same > best.n_copies);
        best.n_second = better ? best.n_copies : MAX (best.n_second, n_same);
        if (better) {
            best.copy = one;
            best.n_copies = n_same;
            best.is_believed = is_believed;
        }
    }
    return best;
}

static bool version_counts (const EcfsRecovering *self, const EcfsRecoverFound *found, const Version *version)
{
    bool counts;
    if (version->copy == NULL || version->is_believed)
        return version->copy != NULL;
    if (ecfs_recover_snapshot_counts (self, found, version->copy, &counts))
        return counts;
    g_autofree EcfsRecoverSaid *said = g_new0 (EcfsRecoverSaid, self->n_places + 1);
    for (guint i = 0; i < found->copies->len; i++) {
        const EcfsRecoverCopy *copy = &g_array_index (found->copies, EcfsRecoverCopy, i);
        if (copy->tried)
            said[copy->position] = copy->digest == NULL                                   ? ECFS_RECOVER_BROKEN
                                   : g_strcmp0 (copy->digest, version->copy->digest) == 0 ? ECFS_RECOVER_SAME
                                                                                          : ECFS_RECOVER_OTHER;
        else
            said[copy->position] = ECFS_RECOVER_OTHER; /* as far as is known */
    }
    return ecfs_recover_is_enough (self, &found->file, said);
}

/* The copy of a file that is believed, with its rows, of @made_ns unless that is NULL. NULL: there is none. */
const EcfsRecoverCopy *ecfs_recover_choose_copy (EcfsRecovering *self, EcfsRecoverFound *found, const int64_t *made_ns)
{
    Version best = best_version (self, found, made_ns);
    for (size_t n_wanted = ecfs_recover_least_words (self); best.n_left > 0; n_wanted = 1) {
        if (!self->has_believed && version_counts (self, found, &best) &&
            (best.n_copies >= self->n_copies || best.n_copies > best.n_second + best.n_left))
            break;
        ecfs_recover_read_copies (self, found, n_wanted);
        best = best_version (self, found, made_ns);
    }
    return version_counts (self, found, &best) ? best.copy : NULL;
}

/* They are read again when they are asked for. */
void ecfs_recover_forget_copies (EcfsRecoverFound *found)
{
    for (guint i = 0; i < found->copies->len; i++) {
        EcfsRecoverCopy *copy = &g_array_index (found->copies, EcfsRecoverCopy, i);
        ecfs_recover_copy_clear (copy);
        copy->tried = false;
    }
}
