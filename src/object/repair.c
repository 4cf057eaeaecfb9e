#include "object/repair.h"

#include "object/reader_priv.h"

struct EcfsRepair {
    EcfsReader *reader;
    bool wanted[ECFS_CODEC_MAX_N];
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
    for (unsigned i = 0; error == NULL && i < reader->n; i++)
        if (load->repair->wanted[i])
            ecfs_segment_put_packet (load->segment, &reader->params.layout, &reader->params.object, i, packets[i]);
    load->done (load->data, error);
    g_free (load);
}

static void load (void *user, EcfsSegment *segment, void (*done) (void *data, const GError *error), void *data)
{
    const EcfsRepair *self = user;
    Load *one = g_new (Load, 1);
    *one = (Load){.repair = self, .segment = segment, .done = done, .data = data};
    ecfs_reader_rebuild (self->reader, segment->index, self->wanted, on_rebuilt, one);
}

EcfsRepair *ecfs_repair_new (EcfsReader *reader, const bool *wanted)
{
    EcfsRepair *self = g_new0 (EcfsRepair, 1);
    self->reader = reader;
    memcpy (self->wanted, wanted, reader->n * sizeof *wanted);
    self->packets = (EcfsPacketSource){.bytes = load_bytes, .load = load, .user = self};
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

uint64_t ecfs_repair_read_bytes (const EcfsRepair *self)
{
    return ecfs_reader_received_bytes (self->reader);
}
