#include "object/units.h"

#include "util/error.h"

#include <string.h>

#define UNIT_BYTES    (16u << 20)
#define DIGESTS_BYTES (4u << 20) /* of all units of a file */

static uint64_t divide_up (uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

static size_t digest_bytes (const EcfsCodec *codec)
{
    return (size_t) (ecfs_codec_n (codec) + 1) * ECFS_SHA256_SIZE;
}

uint32_t ecfs_units_segments (const EcfsCodec *codec, const EcfsLayout *layout, uint64_t file_bytes)
{
    uint32_t unit = UNIT_BYTES;
    while (unit < ECFS_SEGMENT_MAX && divide_up (file_bytes, unit) * digest_bytes (codec) > DIGESTS_BYTES)
        unit *= 2;
    return MAX (unit / layout->segment_bytes, 1);
}

EcfsUnits *ecfs_units_new (const EcfsCodec *codec, const EcfsLayout *layout, uint32_t n_segments, GError **error)
{
    if (n_segments == 0 || n_segments > ECFS_SEGMENT_MAX / layout->segment_bytes ||
        layout->block_bytes < layout->tag_bytes) { /* nor would there be more tags than content in memory */
        (void) !ecfs_fail (error, EBADMSG, "units of %" G_GUINT32_FORMAT " segments make no sense", n_segments);
        return NULL;
    }
    EcfsUnits *self = g_new0 (EcfsUnits, 1);
    *self = (EcfsUnits){.codec = codec, .layout = *layout, .n_segments = n_segments, .digests = g_byte_array_new ()};
    return self;
}

void ecfs_units_free (EcfsUnits *self)
{
    if (self == NULL)
        return;
    g_byte_array_unref (self->digests);
    g_free (self);
}

uint64_t ecfs_units_count (const EcfsUnits *self)
{
    return divide_up (ecfs_layout_n_segments (&self->layout), self->n_segments);
}

uint64_t ecfs_units_at (const EcfsUnits *self, uint64_t offset)
{
    return offset / self->layout.segment_bytes / self->n_segments;
}

uint64_t ecfs_units_offset (const EcfsUnits *self, uint64_t unit)
{
    return unit * self->n_segments * self->layout.segment_bytes;
}

uint32_t ecfs_units_bytes (const EcfsUnits *self, uint64_t unit)
{
    uint64_t left = self->layout.size - ecfs_units_offset (self, unit);
    return (uint32_t) MIN (left, (uint64_t) self->n_segments * self->layout.segment_bytes);
}

size_t ecfs_units_digest_bytes (const EcfsUnits *self)
{
    return digest_bytes (self->codec);
}

const uint8_t *ecfs_units_digests (const EcfsUnits *self, uint64_t unit)
{
    return self->digests->data + unit * digest_bytes (self->codec);
}

void ecfs_units_add (EcfsUnits *self, const uint8_t *digests)
{
    g_byte_array_append (self->digests, digests, (guint) digest_bytes (self->codec));
}

/* The first segment of a unit, and the one behind its last. */
static void unit_segments (const EcfsUnits *self, uint64_t unit, uint64_t *ret_first, uint64_t *ret_end)
{
    *ret_first = unit * self->n_segments;
    *ret_end = MIN (*ret_first + self->n_segments, ecfs_layout_n_segments (&self->layout));
}

/* Making them */

typedef struct UnitCoding {
    EcfsUnits *units;
    EcfsCipher *cipher;
    uint8_t *packets;                         /* n in a row */
    EcfsSha256 *states[1 + ECFS_CODEC_MAX_N]; /* of the content, then of the stripes */
} UnitCoding;

/* With the content of a segment in the first packets. */
static void code_segment (UnitCoding *self, uint64_t segment)
{
    const EcfsLayout *layout = &self->units->layout;
    const EcfsCodec *codec = self->units->codec;
    uint32_t content_bytes = ecfs_layout_content_bytes (layout, segment);
    size_t packet_bytes = ecfs_layout_packet_bytes (layout, segment);
    uint8_t *at[ECFS_CODEC_MAX_N];
    ecfs_cipher_next (self->cipher, self->packets, content_bytes);
    ecfs_sha256_update (self->states[0], self->packets, content_bytes);
    memset (self->packets + content_bytes, 0, layout->k * packet_bytes - content_bytes);
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        at[i] = self->packets + i * packet_bytes;
    ecfs_codec_encode (codec, (const uint8_t *const *) at, at + layout->k, packet_bytes);
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        ecfs_sha256_update (self->states[1 + i], at[i], packet_bytes);
}

static bool make_unit (UnitCoding *self, uint64_t unit, EcfsUnitsRead read, void *user, GError **error)
{
    const EcfsLayout *layout = &self->units->layout;
    uint8_t digests[(1 + ECFS_CODEC_MAX_N) * ECFS_SHA256_SIZE];
    uint64_t segment, end;
    unit_segments (self->units, unit, &segment, &end);
    for (; segment < end; segment++) {
        if (!read (user, segment * layout->segment_bytes, ecfs_layout_content_bytes (layout, segment), self->packets,
                   error))
            return false;
        code_segment (self, segment);
    }
    for (unsigned i = 0; i < 1 + ecfs_codec_n (self->units->codec); i++)
        ecfs_sha256_end (self->states[i], digests + (size_t) i * ECFS_SHA256_SIZE);
    ecfs_units_add (self->units, digests);
    return true;
}

bool ecfs_units_make (EcfsUnits *self, const uint8_t key[ECFS_KEY_BYTES], EcfsUnitsRead read, void *user,
                      GError **error)
{
    unsigned n = ecfs_codec_n (self->codec);
    g_autofree uint8_t *packets = g_malloc ((size_t) n * ecfs_layout_packet_bytes (&self->layout, 0));
    UnitCoding coding = {.units = self, .packets = packets, .cipher = ecfs_cipher_new (key, 0)};
    for (unsigned i = 0; i < 1 + n; i++)
        coding.states[i] = ecfs_sha256_new ();
    g_byte_array_set_size (self->digests, 0);
    bool good = true;
    for (uint64_t unit = 0; good && unit < ecfs_units_count (self); unit++)
        good = make_unit (&coding, unit, read, user, error);
    for (unsigned i = 0; i < 1 + n; i++)
        ecfs_sha256_free (coding.states[i]);
    ecfs_cipher_free (coding.cipher);
    return good;
}

/* Checking */

static bool has_digest (const EcfsUnits *self, uint64_t unit, unsigned number, const uint8_t *bytes, size_t size)
{
    uint8_t found[ECFS_SHA256_SIZE];
    g_autoptr (EcfsSha256) state = ecfs_sha256_new ();
    ecfs_sha256_update (state, bytes, size);
    ecfs_sha256_end (state, found);
    return memcmp (found, ecfs_units_digests (self, unit) + (size_t) number * ECFS_SHA256_SIZE, sizeof found) == 0;
}

bool ecfs_units_fits (const EcfsUnits *self, uint64_t unit, const uint8_t *bytes)
{
    return has_digest (self, unit, 0, bytes, ecfs_units_bytes (self, unit));
}

/* Reading what is compared */

/* Takes the tags from between the blocks; returns what is left. */
static size_t drop_tags (const EcfsLayout *layout, uint64_t segment, uint64_t end, uint8_t *bytes)
{
    uint8_t *to = bytes;
    const uint8_t *from = bytes;
    for (; segment < end; segment++)
        for (uint32_t block = 0; block < ecfs_layout_n_blocks (layout, segment); block++) {
            uint32_t size = ecfs_layout_block_bytes (layout, segment, block);
            memmove (to, from, size);
            to += size;
            from += size + layout->tag_bytes;
        }
    return (size_t) (to - bytes);
}

/* The packets of a unit in one stripe, g_free (); NULL: they cannot be read, or are not what was stored (*lies). */
static uint8_t *read_packets (const EcfsUnits *self, const EcfsReaderParams *params, uint64_t unit, unsigned index,
                              bool *lies, GError **error)
{
    const EcfsReaderStripe *stripe = &params->stripes[index];
    uint64_t segment, end;
    char name[ECFS_STRIPE_NAME_SIZE];
    unit_segments (self, unit, &segment, &end);
    uint64_t from = ecfs_layout_block_offset (&self->layout, segment, 0);
    uint64_t to = ecfs_layout_block_offset (&self->layout, end - 1, UINT32_MAX);
    g_autofree uint8_t *bytes = g_malloc (to - from);
    EcfsRange range = {.offset = from, .size = to - from, .to = bytes};
    ecfs_stripe_name (&params->object, (uint16_t) index, stripe->instance, name);
    if (!ecfs_endpoint_read_wait (stripe->endpoint, name, &range, 1, error))
        return NULL;
    if (has_digest (self, unit, 1 + index, bytes, drop_tags (&self->layout, segment, end, bytes)))
        return g_steal_pointer (&bytes);
    *lies = true;
    (void) !ecfs_fail (error, EBADMSG,
                       "endpoint %s: %s: segments %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT
                       " are not what was stored",
                       ecfs_endpoint_name (stripe->endpoint), name, segment, end - 1);
    return NULL;
}

/* @packets: of the stripes that are there, the unit's packets one after the other; the missing data is put there. */
static bool decode (const EcfsUnits *self, uint64_t unit, uint8_t **packets, GError **error)
{
    bool present[ECFS_CODEC_MAX_N] = {false}, missing[ECFS_CODEC_MAX_N] = {false}, any = false;
    uint64_t first, end;
    size_t bytes = 0, at = 0;
    unit_segments (self, unit, &first, &end);
    for (uint64_t segment = first; segment < end; segment++)
        bytes += ecfs_layout_packet_bytes (&self->layout, segment);
    for (unsigned i = 0; i < ecfs_codec_n (self->codec); i++) {
        present[i] = packets[i] != NULL;
        missing[i] = i < self->layout.k && !present[i];
        any = any || missing[i];
    }
    g_autoptr (EcfsPlan) plan = any ? ecfs_codec_plan (self->codec, present, missing, error) : NULL;
    if (any && plan == NULL)
        return false;
    for (unsigned i = 0; i < self->layout.k; i++)
        packets[i] = missing[i] ? g_malloc (bytes) : packets[i];
    for (uint64_t segment = first; any && segment < end; segment++) {
        uint8_t *of_segment[ECFS_CODEC_MAX_N] = {NULL};
        for (unsigned i = 0; i < ecfs_codec_n (self->codec); i++)
            of_segment[i] = packets[i] == NULL ? NULL : packets[i] + at;
        ecfs_plan_run (plan, of_segment, ecfs_layout_packet_bytes (&self->layout, segment));
        at += ecfs_layout_packet_bytes (&self->layout, segment);
    }
    return true;
}

static void join (const EcfsUnits *self, uint64_t unit, uint8_t *const *packets, uint8_t *to)
{
    uint64_t segment, end;
    size_t at = 0;
    unit_segments (self, unit, &segment, &end);
    for (; segment < end; segment++) {
        size_t left = ecfs_layout_content_bytes (&self->layout, segment);
        size_t packet_bytes = ecfs_layout_packet_bytes (&self->layout, segment);
        for (unsigned i = 0; i < self->layout.k && left > 0; i++) {
            size_t size = MIN (left, packet_bytes);
            memcpy (to, packets[i] + at, size);
            to += size;
            left -= size;
        }
        at += packet_bytes;
    }
}

static bool is_silent (EcfsEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    bool silent = health.down || health.suspect || health.spent;
    ecfs_endpoint_health_clear (&health);
    return silent;
}

/* Reads from all that answer, and from those that did not of late if need be; keeps what is true as long as more is
 * needed. Returns whether it is enough. */
static bool gather (const EcfsUnits *self, const EcfsReaderParams *params, uint64_t unit, uint8_t **packets,
                    bool *ret_lies, GError **error)
{
    unsigned n = ecfs_codec_n (self->codec);
    bool present[ECFS_CODEC_MAX_N] = {false}, asked[ECFS_CODEC_MAX_N] = {false}, enough = false;
    g_autoptr (GString) failures = g_string_new (NULL);
    for (unsigned turn = 0; turn < 2 * n && !(enough && turn >= n); turn++) {
        unsigned i = turn % n;
        g_autoptr (GError) why = NULL;
        EcfsEndpoint *endpoint = params->stripes[i].endpoint;
        if (endpoint == NULL || asked[i] || (enough && ret_lies[i]) || (turn < n && is_silent (endpoint)))
            continue;
        asked[i] = true;
        g_autofree uint8_t *read = read_packets (self, params, unit, i, &ret_lies[i], &why);
        if (read == NULL)
            g_string_append_printf (failures, "%s%s", failures->len > 0 ? "; " : "", why->message);
        else if (!enough)
            packets[i] = g_steal_pointer (&read);
        present[i] = packets[i] != NULL;
        enough = enough || ecfs_codec_decodable (self->codec, present);
    }
    return enough ||
           ecfs_fail (error, EIO, "too few stripes have the digests that they should have: %s", failures->str);
}

bool ecfs_units_read (const EcfsUnits *self, const EcfsReaderParams *params, uint64_t unit, uint8_t *to, bool *ret_lies,
                      GError **error)
{
    uint8_t *packets[ECFS_CODEC_MAX_N] = {NULL};
    bool good = gather (self, params, unit, packets, ret_lies, error) && decode (self, unit, packets, error);
    if (good)
        join (self, unit, packets, to);
    for (unsigned i = 0; i < ECFS_CODEC_MAX_N; i++)
        g_free (packets[i]);
    return good && (ecfs_units_fits (self, unit, to) ||
                    ecfs_fail (error, EBADMSG, "the digests of content and stripes contradict each other"));
}
