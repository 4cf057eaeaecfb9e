/*
 * lab-forge-cell ARCHIVE PATH CELLS: changes a bit of each segment of a file in the cache whose directory "cells" is
 * CELLS, and its tag so that it fits: what a machine can make that has the archive's key. Prints how many segments it
 * changed.
 */
#include "archive/archive_priv.h"
#include "archive/content.h"
#include "util/io.h"

#include <inttypes.h>
#include <stdio.h>

static void must (bool good, const char *what, const GError *error)
{
    if (!good)
        g_error ("%s: %s", what, error == NULL ? g_strerror (errno) : error->message);
}

static char *cell_path (const char *cells, const EcfsUuid *object, uint64_t segment)
{
    GString *path = g_string_new (cells);
    g_string_append_printf (path, "/%02x/", object->bytes[15]);
    for (size_t i = 0; i < sizeof object->bytes; i++)
        g_string_append_printf (path, "%02x", object->bytes[i]);
    g_string_append_printf (path, "-%016" PRIx64, segment);
    return g_string_free (path, FALSE);
}

/* The first block of its first packet. */
static void forge (const char *path, const EcfsLayout *layout, const EcfsTagger *tagger, uint64_t segment)
{
    uint32_t size = ecfs_layout_block_bytes (layout, segment, 0);
    g_autofree uint8_t *block = g_malloc (size + ECFS_TAG_MAX_BYTES);
    FILE *file = fopen (path, "r+b");
    must (file != NULL && fread (block, size, 1, file) == 1, path, NULL);
    block[0] ^= 1;
    ecfs_tag_put (tagger, 0, ecfs_layout_block_number (layout, segment, 0), block, size, block + size);
    bool good = fseek (file, 0, SEEK_SET) == 0 && fwrite (block, size + layout->tag_bytes, 1, file) == 1;
    must (fclose (file) == 0 && good, path, NULL);
}

int main (int argc, char **argv)
{
    EcfsAttr attr;
    EcfsLayout layout;
    EcfsSealKeys *keys = NULL;
    GError *error = NULL;
    must (argc == 4, "usage: lab-forge-cell ARCHIVE PATH CELLS", NULL);
    EcfsArchive *archive = ecfs_archive_open (argv[1], ECFS_ARCHIVE_READONLY, &error);
    must (archive != NULL, argv[1], error);
    must (ecfs_catalog_resolve (ecfs_archive_catalog (archive), argv[2], &attr, &error), argv[2], error);
    EcfsContent *content = ecfs_content_open (archive, attr.ino, &error);
    must (content != NULL, argv[2], error);
    const EcfsObjectRow *object = ecfs_content_object (content, 0);
    must (ecfs_archive_layout (archive, object, &layout, &error), "layout", error);
    must (ecfs_archive_seal_keys (archive, object, &keys, &error), "keys", error);
    const EcfsTagger tagger = {.object = object->uuid, .mac = ecfs_seal_tag_mac (keys)};
    for (uint64_t segment = 0; segment < ecfs_layout_n_segments (&layout); segment++) {
        g_autofree char *path = cell_path (argv[3], &object->uuid, segment);
        forge (path, &layout, &tagger, segment);
    }
    printf ("%" PRIu64 "\n", ecfs_layout_n_segments (&layout));
    ecfs_seal_keys_unref (keys);
    ecfs_content_unref (content);
    ecfs_archive_free (archive);
    return 0;
}
