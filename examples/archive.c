/*
 * Stores a file in an archive, lists what is there, reads a part of the file, and prints how the archive is:
 *   cc -o archive archive.c $(pkg-config --cflags --libs ecfs) && ./archive ARCHIVE
 */
#include <ecfs/ecfs.h>
#include <inttypes.h>
#include <stdio.h>

static void print (void *user, const EcfsEntry *entry)
{
    printf ("%s %" PRIu64 "\n", entry->path, entry->size);
}

int main (int argc, char **argv)
{
    g_autoptr (GError) error = NULL;
    char part[8] = "";
    size_t size;
    g_autoptr (Ecfs) archive = argc == 2 ? ecfs_open (argv[1], ECFS_OPEN_WRITE, &error) : NULL;
    g_autoptr (EcfsFile) out =
        archive ? ecfs_file_open (archive, "/letters/hello.txt", ECFS_FILE_WRITE, NULL, &error) : NULL;
    bool good = out && ecfs_file_write (out, "Hello, archive!\n", 16, &error) &&
                ecfs_file_close (g_steal_pointer (&out), NULL, &error) &&
                ecfs_list (archive, "/", true, print, NULL, &error);
    g_autoptr (EcfsFile) in = good ? ecfs_file_open (archive, "/letters/hello.txt", 0, NULL, &error) : NULL;
    g_autofree char *status =
        in && ecfs_file_pread (in, part, 7, 7, &size, &error) ? ecfs_status (archive, &error) : NULL;
    if (status == NULL)
        return fprintf (stderr, "%s\n", error ? error->message : "usage: archive ARCHIVE") < 0 ? 2 : 1;
    printf ("%s\n%s\n", part, status);
    return 0;
}
