#include "key/slots.h"

#include "util/bytes.h"

#include <openssl/evp.h>

/* Endpoints that tell of the same shares. */
typedef struct Party {
    const EcfsKeyFile *file;                      /* one of theirs */
    unsigned n_zones;                             /* that hold a share of it which is right */
    const EcfsShare *shares[ECFS_SHARES_MAX + 1]; /* by x; NULL: none has it */
} Party;

void ecfs_share_digest (const EcfsUuid *archive, const EcfsUuid *generation, const EcfsShare *share,
                        uint8_t ret_digest[ECFS_KEY_BYTES])
{
    uint8_t bytes[16 + 16 + 1 + ECFS_SECRET_BYTES];
    memcpy (bytes, archive->bytes, 16);
    memcpy (bytes + 16, generation->bytes, 16);
    bytes[32] = share->x;
    memcpy (bytes + 33, share->y, ECFS_SECRET_BYTES);
    if (EVP_Digest (bytes, sizeof bytes, ret_digest, NULL, EVP_sha256 (), NULL) != 1)
        g_error ("OpenSSL cannot compute SHA-256");
    ecfs_key_forget (bytes, sizeof bytes);
}

static bool tells_the_same (const EcfsKeyFile *a, const EcfsKeyFile *b)
{
    return ecfs_uuid_equal (&a->generation, &b->generation) && a->threshold == b->threshold &&
           a->n_shares == b->n_shares && memcmp (a->digests, b->digests, a->n_shares * sizeof *a->digests) == 0;
}

static bool has_right_share (const EcfsUuid *archive, const EcfsShareWitness *witness)
{
    uint8_t digest[ECFS_KEY_BYTES];
    const EcfsKeyFile *file = witness->file;
    if (file == NULL || file->threshold == 0 || file->share.x == 0 || !ecfs_uuid_equal (&file->archive, archive))
        return false;
    ecfs_share_digest (archive, &file->generation, &file->share, digest);
    return memcmp (digest, file->digests[file->share.x - 1], sizeof digest) == 0;
}

static bool is_with (const EcfsUuid *archive, const Party *party, const EcfsShareWitness *witness)
{
    return has_right_share (archive, witness) && tells_the_same (party->file, witness->file);
}

/* All that tell what witness @first tells. */
static Party party_of (const EcfsUuid *archive, const EcfsShareWitness *witnesses, size_t n, size_t first)
{
    Party party = {.file = witnesses[first].file};
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    for (size_t i = 0; i < n; i++) {
        if (!is_with (archive, &party, &witnesses[i]))
            continue;
        party.shares[witnesses[i].file->share.x] = &witnesses[i].file->share;
        g_hash_table_add (zones, (void *) witnesses[i].zone);
    }
    party.n_zones = g_hash_table_size (zones);
    return party;
}

static bool join (const Party *party, uint8_t ret_secret[ECFS_SECRET_BYTES], GError **error)
{
    EcfsShare shares[ECFS_SHARES_MAX];
    unsigned n = 0;
    for (unsigned x = 1; x <= ECFS_SHARES_MAX && n < party->file->threshold; x++) {
        if (party->shares[x] != NULL)
            shares[n++] = *party->shares[x];
    }
    bool enough = n == party->file->threshold;
    if (enough)
        (void) ecfs_secret_join (shares, n, ret_secret); /* each x is there once */
    ecfs_key_forget (shares, sizeof shares);
    return enough || ecfs_fail (error, ENODATA, "the key needs the shares of %u zones, and there are %u",
                                party->file->threshold, n);
}

/* Zones with a share that is right by a list other than the party's, and with none of the party's. */
static unsigned n_zones_against (const EcfsUuid *archive, const EcfsShareWitness *witnesses, size_t n,
                                 const Party *party)
{
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    for (size_t i = 0; i < n; i++)
        if (has_right_share (archive, &witnesses[i]))
            g_hash_table_add (zones, (void *) witnesses[i].zone);
    for (size_t i = 0; i < n; i++)
        if (is_with (archive, party, &witnesses[i]))
            g_hash_table_remove (zones, witnesses[i].zone);
    return g_hash_table_size (zones);
}

bool ecfs_zones_settle (unsigned n_with, unsigned n_against, unsigned threshold, unsigned most_needed)
{
    return n_with >= most_needed || (n_with > threshold && n_against < threshold);
}

bool ecfs_secret_gather (const EcfsUuid *archive, EcfsShareWitness *witnesses, size_t n_witnesses,
                         uint8_t ret_secret[ECFS_SECRET_BYTES], EcfsUuid *ret_generation, GError **error)
{
    Party best = {.n_zones = 0};
    bool tie = false, several = false;
    unsigned most_needed = 0;
    for (size_t i = 0; i < n_witnesses; i++) {
        if (!has_right_share (archive, &witnesses[i]))
            continue;
        Party party = party_of (archive, witnesses, n_witnesses, i);
        bool same = best.file != NULL && tells_the_same (best.file, party.file);
        several = several || (best.file != NULL && !same);
        tie = party.n_zones > best.n_zones ? false : tie || (party.n_zones == best.n_zones && !same);
        if (party.n_zones > best.n_zones)
            best = party;
        most_needed = MAX (most_needed, party.file->threshold);
    }
    if (best.file == NULL)
        return ecfs_fail (error, ENODATA, "no endpoint has a share of the key");
    for (size_t i = 0; i < n_witnesses; i++)
        witnesses[i].contradicts = witnesses[i].file != NULL && !is_with (archive, &best, &witnesses[i]);
    const unsigned threshold = best.file->threshold;
    if (tie || (several && best.n_zones >= threshold &&
                !ecfs_zones_settle (best.n_zones, n_zones_against (archive, witnesses, n_witnesses, &best), threshold,
                                    most_needed)))
        return ecfs_fail (error, ENOTUNIQ, "endpoints tell of different shares of the key, and too few agree");
    *ret_generation = best.file->generation;
    return join (&best, ret_secret, error);
}
