/* Stripes, as endpoints have them: which there are, and what their headers, footers and packets tell. */
#include "recover/recover_priv.h"
#include "util/io.h"
#include "util/xxh3.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECES_LEAST 65536      /* that there is room for */
#define READERS      4          /* for each endpoint */
#define HEAD_BYTES   4096       /* read at once from the begin and the end of a stripe */
#define AREA_BYTES   (4u << 20) /* … and from between */

typedef struct Pieces {
    EcfsRecovering *recovering;
    EcfsRecoverPieces *all;
    size_t position;
    GError *failure;
} Pieces;

static int compare_pieces (const void *a, const void *b)
{
    const EcfsRecoverPiece *left = a, *right = b;
    int order = memcmp (&left->object, &right->object, sizeof left->object);
    if (order == 0)
        order = (left->index > right->index) - (left->index < right->index);
    return order != 0 ? order : (left->instance > right->instance) - (left->instance < right->instance);
}

/* What is mapped has its blocks on the disk: there is no other way to learn in time that this is full. */
static bool grow (const EcfsRecovering *recovering, EcfsRecoverPieces *all, GError **error)
{
    const size_t room = MAX (all->room * 2, PIECES_LEAST), size = room * sizeof *all->at;
    if (all->fd < 0)
        all->fd = ecfs_nameless_file (recovering->directory, error);
    if (all->fd < 0)
        return false;
    int result = posix_fallocate (all->fd, 0, (off_t) size);
    if (result != 0)
        return ecfs_fail_errno (error, result, "%s: a list of the stripes that are there", recovering->directory);
    void *at = all->at == NULL ? mmap (NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, all->fd, 0)
                               : mremap (all->at, all->room * sizeof *all->at, size, MREMAP_MAYMOVE);
    if (at == MAP_FAILED)
        return ecfs_fail_errno (error, errno, "%s: a list of the stripes that are there", recovering->directory);
    all->at = at;
    all->room = room;
    return true;
}

static void on_listed (void *user, const EcfsListed *listed)
{
    Pieces *self = user;
    EcfsRecoverPiece piece = {.size = listed->size, .mtime_s = listed->mtime_s, .position = (uint16_t) self->position};
    if (self->failure != NULL || !ecfs_stripe_name_parse (listed->name, &piece.object, &piece.index, &piece.instance) ||
        piece.index > 255)
        return;
    if (self->all->len == self->all->room && !grow (self->recovering, self->all, &self->failure))
        return;
    self->all->at[self->all->len++] = piece;
}

static bool list (Pieces *self, GError **error)
{
    EcfsRecovering *recovering = self->recovering;
    return ecfs_recover_tick (recovering, "listing stripes", self->position, recovering->n_places, error) &&
           ecfs_endpoint_list_wait (recovering->places[self->position].endpoint, "stripes", on_listed, self, error);
}

bool ecfs_recover_pieces (EcfsRecovering *self, EcfsRecoverPieces *ret_all, GError **error)
{
    Pieces pieces = {.recovering = self, .all = ret_all};
    bool listed = true;
    *ret_all = (EcfsRecoverPieces){.fd = -1};
    for (; listed && pieces.position < self->n_places; pieces.position++) {
        listed = list (&pieces, error);
        if (listed && pieces.failure != NULL)
            listed = (g_propagate_error (error, g_steal_pointer (&pieces.failure)), false);
    }
    g_clear_error (&pieces.failure);
    if (listed && ret_all->len > 0)
        qsort (ret_all->at, ret_all->len, sizeof *ret_all->at, compare_pieces);
    return listed;
}

void ecfs_recover_pieces_clear (EcfsRecoverPieces *self)
{
    if (self->at != NULL)
        (void) munmap (self->at, self->room * sizeof *self->at); /* it was mapped */
    if (self->fd >= 0)
        (void) close (self->fd); /* it has no name */
}

size_t ecfs_recover_find_pieces (const EcfsRecoverPieces *all, const EcfsUuid *object)
{
    size_t low = 0, high = all->len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memcmp (&all->at[middle].object, object, sizeof *object) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t ecfs_recover_end_of_object (const EcfsRecoverPieces *all, size_t at)
{
    size_t end = at;
    while (end < all->len && ecfs_uuid_equal (&all->at[end].object, &all->at[at].object))
        end++;
    return end;
}

unsigned ecfs_recover_n_readers (const EcfsRecovering *self)
{
    return READERS * (unsigned) MIN (self->n_places, 16);
}

/* Reading headers and footers */

/* Which keys it is to be authentic by: one without a key is none of an archive that has one, but where it was stored
 * before that. */
static bool open_seal (EcfsRecoverTold *self, GError **error)
{
    const EcfsRecovering *recovering = self->recovering;
    const EcfsStripeHeader *header = &self->header;
    self->is_open = header->seal.kind == ECFS_SEAL_NONE && recovering->keys != NULL && !self->may_be_open;
    if (self->is_open)
        return ecfs_fail (error, EBADMSG, "it is not sealed, and the archive has a key");
    if (header->seal.kind != ECFS_SEAL_NONE && recovering->keys != NULL &&
        ecfs_key_ring_has (recovering->keys, &header->seal.key) &&
        !ecfs_key_ring_covers (recovering->keys, &header->seal.key, header->epoch, header->sequence))
        return ecfs_fail (error, EBADMSG, "it is sealed under a key that was retired before");
    return ecfs_seal_open (&header->seal, recovering->keys, &header->object, &self->keys, error);
}

static bool parse_head (EcfsRecoverTold *self, const uint8_t *head, size_t size, GError **error)
{
    const EcfsRecoverPiece *piece = self->piece;
    EcfsStripeHeader *header = &self->header;
    if (!ecfs_stripe_header_parse (head, size, header, error))
        return false;
    if (!ecfs_uuid_equal (&header->archive, &self->recovering->archive))
        return ecfs_fail (error, EBADMSG, "it is of another archive");
    return ((ecfs_uuid_equal (&header->object, &piece->object) && header->index == piece->index &&
             header->instance == piece->instance) ||
            ecfs_fail (error, EBADMSG, "it is another stripe, renamed")) &&
           open_seal (self, error) && ecfs_stripe_header_check (header, head, self->keys, error);
}

bool ecfs_recover_read_range (const EcfsRecoverTold *self, uint64_t offset, size_t size, uint8_t **ret_bytes,
                              GError **error)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    const EcfsRecoverPiece *piece = self->piece;
    g_autofree uint8_t *bytes = g_malloc (size);
    const EcfsRange range = {.offset = offset, .size = size, .to = bytes};
    ecfs_stripe_name (&piece->object, piece->index, piece->instance, name);
    if (!ecfs_endpoint_read_wait (self->recovering->places[piece->position].endpoint, name, &range, 1, error))
        return false;
    *ret_bytes = g_steal_pointer (&bytes);
    return true;
}

static bool read_head (EcfsRecoverTold *self, GError **error)
{
    g_autoptr (GError) reason = NULL;
    g_autofree uint8_t *head = NULL, *more = NULL;
    size_t size = MIN (HEAD_BYTES, self->piece->size);
    if (!ecfs_recover_read_range (self, 0, size, &head, error))
        return false;
    bool fits = parse_head (self, head, size, &reason);
    if (!fits && reason->code == EAGAIN && self->header.header_bytes <= self->piece->size) {
        g_clear_error (&reason);
        size = self->header.header_bytes;
        if (!ecfs_recover_read_range (self, 0, size, &more, error))
            return false;
        fits = parse_head (self, more, size, &reason);
    }
    if (!fits)
        g_propagate_error (error, g_steal_pointer (&reason));
    /* They point into what goes now. */
    self->header.parameters = fits ? g_memdup2 (self->header.parameters, self->header.parameters_bytes) : NULL;
    self->header.mac = NULL;
    return fits;
}

static bool parse_foot (EcfsRecoverTold *self, const uint8_t *bytes, size_t size, uint64_t hash, GError **error)
{
    if (!ecfs_stripe_footer_parse (bytes, size, hash, &self->header, self->keys, &self->footer, error))
        return false;
    g_clear_pointer (&self->footer.chain, g_byte_array_unref); /* of no use here, and all that is told is kept */
    return true;
}

static bool read_foot (EcfsRecoverTold *self, GError **error)
{
    uint64_t offset, hash, file_size = self->piece->size;
    uint32_t size;
    g_autofree uint8_t *end = NULL, *more = NULL;
    size_t end_bytes = MIN (HEAD_BYTES, file_size);
    if (!ecfs_recover_read_range (self, file_size - end_bytes, end_bytes, &end, error) ||
        !ecfs_stripe_tail_parse (end + end_bytes - ECFS_STRIPE_TAIL_BYTES, file_size, &offset, &size, &hash, error))
        return false;
    self->footer_offset = offset;
    if (size + ECFS_STRIPE_TAIL_BYTES <= end_bytes)
        return parse_foot (self, end + end_bytes - ECFS_STRIPE_TAIL_BYTES - size, size, hash, error);
    return ecfs_recover_read_range (self, offset, size, &more, error) && parse_foot (self, more, size, hash, error);
}

/* Whether the stripe is as long as the sizes that it tells make it. */
static bool check_sizes (const EcfsRecoverTold *self, GError **error)
{
    EcfsLayout layout;
    return ecfs_stripe_layout (&self->header, self->footer.size, &layout, error) &&
           ((self->footer.area_bytes == ecfs_layout_area_bytes (&layout) &&
             self->footer_offset == layout.header_bytes + self->footer.area_bytes) ||
            ecfs_fail (error, EBADMSG, "its packets do not have the size that its content gives them"));
}

/* What the stripe tells beside its header, where that may be of files. */
static bool read_rest (EcfsRecoverTold *self, GError **error)
{
    bool may = true;
    if (self->is_unknown && !ecfs_recover_may_be_content (self->recovering, &self->header, &may, error))
        return false;
    self->is_over = !may;
    if (self->is_over)
        return true;
    return self->header.is_log ? ecfs_recover_read_log (self, error)
                               : read_foot (self, error) && check_sizes (self, error);
}

void ecfs_recover_told_read (void *data)
{
    EcfsRecoverTold *self = data;
    g_autoptr (GError) error = NULL;
    self->good = self->piece->size > ECFS_STRIPE_TAIL_BYTES + ECFS_STRIPE_PREAMBLE_BYTES && read_head (self, &error) &&
                 read_rest (self, &error);
    if (self->good)
        atomic_fetch_add (&self->recovering->n_told, 1);
    if (ecfs_errno (error) == ENOKEY && !self->recovering->places[self->piece->position].distrusted)
        atomic_fetch_add (&self->recovering->n_sealed, 1);
    if (!self->good && error != NULL)
        g_info ("endpoint %s: a stripe is left alone: %s", self->recovering->places[self->piece->position].name,
                error->message);
}

void ecfs_recover_told_clear (gpointer data)
{
    EcfsRecoverTold *self = data;
    g_free ((uint8_t *) self->header.parameters);
    ecfs_seal_keys_unref (self->keys);
    ecfs_stripe_footer_clear (&self->footer);
}

/* Packets */

static bool hash_area (const EcfsRecoverTold *self, XXH3_state_t *state)
{
    uint64_t end = self->footer_offset;
    for (uint64_t at = self->header.header_bytes, size; at < end; at += size) {
        g_autofree uint8_t *bytes = NULL;
        size = MIN (AREA_BYTES, end - at);
        if (!ecfs_recover_read_range (self, at, (size_t) size, &bytes, NULL))
            return false;
        ecfs_xxh3_128_update (state, bytes, (size_t) size);
    }
    return true;
}

bool ecfs_recover_told_fits (const EcfsRecoverTold *self, const uint8_t *digest)
{
    XXH128_canonical_t found;
    if (!self->good)
        return false;
    XXH3_state_t *state = XXH3_createState ();
    XXH3_128bits_reset (state);
    bool read = hash_area (self, state);
    XXH128_canonicalFromHash (&found, XXH3_128bits_digest (state));
    XXH3_freeState (state);
    return read && memcmp (found.digest, digest, ECFS_DIGEST_SIZE) == 0;
}
