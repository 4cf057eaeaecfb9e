#include "cache/cells.h"

#include "util/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_SIZE 50 /* OBJECT-SEGMENT and a NUL */

static char *folder_path (const char *directory, unsigned folder)
{
    return g_strdup_printf ("%s/cells/%02x", directory, folder);
}

static void cell_name (const EcfsCacheCell *cell, char name[NAME_SIZE])
{
    for (size_t i = 0; i < sizeof cell->object.bytes; i++)
        snprintf (name + 2 * i, 3, "%02x", cell->object.bytes[i]);
    snprintf (name + 32, NAME_SIZE - 32, "-%016" PRIx64, cell->segment);
}

static bool parse_name (const char *name, EcfsCacheCell *ret_cell)
{
    char same[NAME_SIZE];
    if (strlen (name) != NAME_SIZE - 1 || name[32] != '-' || strspn (name + 33, "0123456789abcdef") != 16)
        return false;
    for (size_t i = 0; i < sizeof ret_cell->object.bytes; i++) {
        int high = g_ascii_xdigit_value (name[2 * i]), low = g_ascii_xdigit_value (name[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret_cell->object.bytes[i] = (uint8_t) (high << 4 | low);
    }
    ret_cell->segment = g_ascii_strtoull (name + 33, NULL, 16);
    cell_name (ret_cell, same);
    return strcmp (same, name) == 0;
}

static char *cell_path (const char *directory, const EcfsCacheCell *cell)
{
    char name[NAME_SIZE];
    cell_name (cell, name);
    return g_strdup_printf ("%s/cells/%02x/%s", directory, cell->object.bytes[15], name);
}

static int check_own (const char *path)
{
    struct stat status;
    if (lstat (path, &status) != 0)
        return -errno;
    bool own = S_ISDIR (status.st_mode) && status.st_uid == geteuid () && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
    return own ? 0 : -EPERM;
}

int ecfs_cells_check (const char *directory)
{
    g_autofree char *cells = g_build_filename (directory, "cells", NULL);
    int result = check_own (directory);
    return result != 0 ? result : check_own (cells);
}

bool ecfs_cells_make (const char *directory, GError **error)
{
    g_autofree char *cells = g_build_filename (directory, "cells", NULL), *parent = g_path_get_dirname (directory);
    bool made = g_mkdir_with_parents (parent, 0700) == 0 && (mkdir (directory, 0700) == 0 || errno == EEXIST);
    if (made && check_own (directory) == 0) /* else nothing is made behind a link */
        made = mkdir (cells, 0700) == 0 || errno == EEXIST;
    if (!made)
        return ecfs_fail_errno (error, errno, "%s", cells);
    int result = ecfs_cells_check (directory);
    return result == 0 || ecfs_fail_errno (error, -result,
                                           "%s: it and cells in it have to be directories of this user, in which "
                                           "nobody else can write: remove it, or choose another place",
                                           directory);
}

int ecfs_cell_open (const char *directory, const EcfsCacheCell *cell)
{
    g_autofree char *path = cell_path (directory, cell);
    int fd = open (path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int open_to_write (const char *directory, const EcfsCacheCell *cell)
{
    g_autofree char *path = cell_path (directory, cell);
    const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    int fd = open (path, flags, 0600);
    if (fd < 0 && errno == ENOENT) {
        g_autofree char *folder = folder_path (directory, cell->object.bytes[15]);
        if (mkdir (folder, 0700) != 0 && errno != EEXIST)
            return -errno;
        fd = open (path, flags, 0600);
    }
    return fd < 0 ? -errno : fd;
}

int ecfs_cell_write (const char *directory, const EcfsCacheCell *cell, const EcfsCacheRange *ranges, unsigned n_ranges,
                     uint64_t *ret_bytes)
{
    struct stat status;
    ecfs_autofd fd = open_to_write (directory, cell);
    if (fd < 0)
        return fd;
    for (unsigned i = 0; i < n_ranges; i++) {
        int result = ecfs_pwrite_all (fd, ranges[i].bytes, ranges[i].size, ranges[i].offset);
        if (result != 0)
            return result;
    }
    if (fstat (fd, &status) != 0)
        return -errno;
    *ret_bytes = (uint64_t) status.st_blocks * 512;
    return 0;
}

int ecfs_cell_remove (const char *directory, const EcfsCacheCell *cell)
{
    g_autofree char *path = cell_path (directory, cell);
    return unlink (path) == 0 || errno == ENOENT ? 0 : -errno;
}

void ecfs_cells_walk (const char *directory, unsigned folder, void (*each) (void *user, const EcfsCacheCell *cell),
                      void *user)
{
    const struct dirent *entry;
    g_autofree char *path = folder_path (directory, folder);
    int fd = ecfs_cells_check (directory) == 0 ? open (path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *names = fd < 0 ? NULL : fdopendir (fd);
    while (names != NULL && (entry = readdir (names)) != NULL) {
        EcfsCacheCell cell;
        if (parse_name (entry->d_name, &cell) && cell.object.bytes[15] == folder)
            each (user, &cell);
        else
            (void) unlinkat (fd, entry->d_name, 0); /* a directory stays, and is in nobody's way */
    }
    if (names != NULL)
        (void) closedir (names); /* was only read */
    else if (fd >= 0)
        (void) close (fd);
}

static void remove_one (void *user, const EcfsCacheCell *cell)
{
    (void) ecfs_cell_remove (user, cell); /* what stays is swept later, and is never wrong */
}

void ecfs_cells_remove_all (const char *directory)
{
    g_autofree char *cells = g_build_filename (directory, "cells", NULL);
    if (ecfs_cells_check (directory) != 0)
        return;
    for (unsigned i = 0; i < ECFS_CACHE_FOLDERS; i++) {
        g_autofree char *folder = folder_path (directory, i);
        ecfs_cells_walk (directory, i, remove_one, (void *) directory);
        (void) rmdir (folder); /* most are not there */
    }
    (void) rmdir (cells); /* what could not be removed keeps it */
}
