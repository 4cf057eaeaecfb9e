#include "codec/binary.h"
#include "codec/graph.h"

EcfsCodec *ecfs_graph_codec_new (const EcfsGraph *graph)
{
    EcfsBinary *self = g_new0 (EcfsBinary, 1);
    self->base.k = graph->k;
    self->base.n = graph->k + graph->m;
    self->base.parameters = ecfs_graph_format (graph, &self->base.parameters_bytes);
    self->parts = 1;
    for (unsigned parity = 0; parity < graph->m; parity++)
        for (unsigned i = 0; i < graph->k; i++)
            self->rotation[parity][i] = ecfs_graph_has (graph, parity, i) ? 0 : -1;
    ecfs_binary_finish (self);
    return &self->base;
}
