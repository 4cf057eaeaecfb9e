/* A record of the journal, as it comes back from an endpoint: every part of every item is looked at. */
#include "catalog/journal.h"

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static uint64_t sum (EcfsJournalBytes part)
{
    uint64_t total = 0;
    for (size_t i = 0; i < part.size; i++)
        total += part.bytes[i];
    return total;
}

static void look_at_key (const EcfsJournalItem *item)
{
    EcfsSeal seal;
    uint8_t again[ECFS_SEAL_BYTES];
    if (!ecfs_seal_parse (item->value.bytes, item->value.size, &seal, NULL))
        return;
    ecfs_seal_put (&seal, again);
    g_assert_cmpmem (again, sizeof again, item->value.bytes, (int) item->value.size);
}

static uint64_t look_at_part (const EcfsJournalItem *item, size_t i)
{
    switch (item->type) {
    case ECFS_JOURNAL_CONTENT:
        return ecfs_journal_extent (item, i).length;
    case ECFS_JOURNAL_PACKED:
        return ecfs_journal_placed (item, i).ino;
    default:
        return ecfs_journal_stripe (item, i).instance;
    }
}

static uint64_t look (const EcfsJournalItem *item)
{
    uint64_t total = sum (item->name) + sum (item->value) + sum (item->code);
    if (item->type == ECFS_JOURNAL_OBJECT_KEY)
        look_at_key (item);
    for (size_t i = 0; i < item->n_parts; i++)
        total += look_at_part (item, i);
    return total;
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    EcfsCursor cursor;
    EcfsJournalItem item;
    volatile uint64_t total = 0;
    int result = ecfs_journal_open (&cursor, bytes, size);
    if (result != 0)
        return 0;
    while ((result = ecfs_journal_next (&cursor, &item)) == 1)
        total = total + look (&item);
    g_assert (result == 0 || result == -EBADMSG || result == -ENOTSUP);
    return 0;
}
