#include "object/repair.h"

#include "object/chain.h"
#include "object/reader_priv.h"

#include <assert.h>

struct EcfsRepair {
    EcfsReader *reader;
    bool wanted[ECFS_CODEC_MAX_N];
    const EcfsRepairPace *pace; /* may be NULL */
    EcfsPacketSource packets;
};

typedef struct Load {
    const EcfsRepair *repair;
    EcfsSegment *segment;
    void (*done) (void *data, const GError *error);
    void *data;
} Load;

static size_t load_bytes (void *user, uint64_t segment)
{
    const EcfsRepair *self = user;
    return ecfs_reader_rebuild_bytes (self->reader, segment);
}

static void on_rebuilt (void *user, uint8_t *const *packets, const GError *error)
{
    Load *load = user;
    const EcfsReader *reader = load->repair->reader;
    const EcfsLayout *layout = &reader->params.layout;
    const EcfsTagger tagger = ecfs_reader_tagger (&reader->params);
    assert (load->segment->block_step == layout->block_bytes + layout->tag_bytes); /* both or neither have a key */
    for (unsigned i = 0; error == NULL && i < reader->n; i++)
        if (load->repair->wanted[i])
            ecfs_segment_put_packet (load->segment, layout, &tagger, i, packets[i]);
    load->done (load->data, error);
    g_free (load);
}

static bool held (void *user)
{
    const EcfsRepair *self = user;
    return self->pace->held (self->pace->user);
}

/* What rebuilding a segment costs the network, about: most codes read k packets for whatever is lost. */
static uint64_t traffic (const EcfsRepair *self, uint64_t segment)
{
    const EcfsReader *reader = self->reader;
    uint64_t n_packets = reader->params.layout.k;
    for (unsigned i = 0; i < reader->n; i++)
        n_packets += self->wanted[i];
    return n_packets * ecfs_layout_packet_bytes (&reader->params.layout, segment);
}

static void load (void *user, EcfsSegment *segment, void (*done) (void *data, const GError *error), void *data)
{
    const EcfsRepair *self = user;
    if (self->pace != NULL)
        self->pace->spent (self->pace->user, traffic (self, segment->index));
    Load *one = g_new (Load, 1);
    *one = (Load){.repair = self, .segment = segment, .done = done, .data = data};
    ecfs_reader_rebuild (self->reader, segment->index, self->wanted, on_rebuilt, one);
}

EcfsRepair *ecfs_repair_new (EcfsReader *reader, const bool *wanted, const EcfsRepairPace *pace)
{
    EcfsRepair *self = g_new0 (EcfsRepair, 1);
    self->reader = reader;
    memcpy (self->wanted, wanted, reader->n * sizeof *wanted);
    self->pace = pace;
    self->packets = (EcfsPacketSource){.bytes = load_bytes,
                                       .load = load,
                                       .held = pace == NULL ? NULL : held,
                                       .most_bytes = pace == NULL ? 0 : pace->most_bytes,
                                       .user = self};
    return self;
}

void ecfs_repair_free (EcfsRepair *self)
{
    if (self == NULL)
        return;
    ecfs_reader_close (self->reader);
    g_free (self);
}

const EcfsPacketSource *ecfs_repair_packets (const EcfsRepair *self)
{
    return &self->packets;
}

GByteArray *ecfs_repair_chain (const EcfsRepair *self)
{
    const EcfsReaderParams *params = &self->reader->params;
    bool may_have = params->keys != NULL && ecfs_layout_n_segments (&params->layout) > 1;
    return may_have ? ecfs_chain_seek_wait (params) : NULL;
}

uint64_t ecfs_repair_read_bytes (const EcfsRepair *self)
{
    return ecfs_reader_received_bytes (self->reader);
}
