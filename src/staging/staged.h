/*
 * A file while it is being written: its staging file, who has it open, and how its content becomes committed. All
 * decisions of "a flush is not a close" (doc/architecture.md decision 4) are made here; fs and `put` only report what
 * happened to the file.
 *
 * There is one staged file per inode at most, found by inode. Every write, truncate or fallocate moves its generation,
 * and an attempt publishes only when that has not moved since the attempt began. So a staged file is
 * - clean: it equals the committed content;
 * - dirty: bytes, size or mtime moved since;
 * - committing: an attempt reads it, and nothing moved since it began;
 * - committing and dirty: the attempt will end with ECANCELED, and another follows at the next flush or last release.
 *
 * Ownership: writers hold the staged file open; after the last release it belongs to this part alone, which retries
 * failed commits with back-off, fills up what is not full, and in the end deletes staging file and row.
 */
#ifndef ECFS_STAGING_STAGED_H
#define ECFS_STAGING_STAGED_H

#include "archive/content.h"

typedef struct EcfsStaged EcfsStaged;
typedef struct EcfsStagedTable EcfsStagedTable; /* all of an archive; made by start, freed with the archive */

/** After ecfs_archive_stop (); NULL is accepted. */
void ecfs_staged_table_free (EcfsStagedTable *table);

/** Called exactly once per request, from any thread, never with a lock held. NULL is success. */
typedef void (*EcfsStagedDone) (void *user, const GError *error);

/**
 * After ecfs_archive_start (): queued rows of an earlier mount are committed, unflushed content goes to interrupted/
 * and fresh files without flushed content lose their names. Returns false only when nothing may go on.
 */
bool ecfs_staged_start (EcfsArchive *archive, GError **error);

/**
 * Waits until what has only its quorum is full, as long as nothing fails at that and @goes_on, which is asked now and
 * then. Blocks.
 */
void ecfs_staged_await_full (EcfsArchive *archive, bool (*goes_on) (void *user), void *user);

/**
 * Stops: waits until everything that was flushed or released is committed or @deadline_us (monotonic), and up to 30 s
 * more for what has only its quorum to be full, unless that fails; what is left is
 * kept for the next mount and counted in *ret_left (rows). What a writer has open and never flushed is left too, and
 * the next mount keeps it apart: half a file does not replace a whole one. Nothing may change any more.
 */
void ecfs_staged_stop (EcfsArchive *archive, int64_t deadline_us, unsigned *ret_left);

/** The staged file of an inode that was just made with `staged`: new, empty, open for one writer. */
EcfsStaged *ecfs_staged_new (EcfsArchive *archive, const EcfsAttr *attr, int64_t staging, GError **error);

/**
 * Opens an inode for writing: joins its staged file where there is one, else begins one with a copy of the committed
 * content (copy-up), or empty with @truncate. Copying up reads endpoints, so the answer comes by callback, with a
 * staged file for ecfs_staged_release () or an error: EPERM and EFBIG where configuration forbids it, EROFS without
 * ecfs_staged_start ().
 */
void ecfs_staged_open (EcfsArchive *archive, uint64_t ino, bool truncate,
                       void (*done) (void *user, EcfsStaged *staged, const GError *error), void *user);

/** The staged file of an inode, if there is one: its bytes are the file's newest. A reference. */
EcfsStaged *ecfs_staged_find (EcfsArchive *archive, uint64_t ino);
EcfsStaged *ecfs_staged_ref (EcfsStaged *self);
void ecfs_staged_unref (EcfsStaged *self); /* of find and ref; NULL is accepted */
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsStaged, ecfs_staged_unref)

/** The same with its file open until ecfs_staged_read_end (), which takes the reference. NULL without an error: nothing
 * of it is staged. */
EcfsStaged *ecfs_staged_read_begin (EcfsArchive *archive, uint64_t ino, GError **error);
void ecfs_staged_read_end (EcfsStaged *self); /* NULL is accepted */

/** Local file to read from and write to with pread, pwrite, lseek: for writers, and for readers between read_begin and
 * read_end. Belongs to self. */
int ecfs_staged_fd (EcfsStaged *self);

/**
 * Brackets every change of the file: begin says a change of bytes at @offset and behind (UINT64_MAX: of none that are
 * there) with up to @size more bytes follows (ENOSPC when staging has no room and none is being made), end that
 * @n_new_bytes are in and the file has at least @size bytes now. Each begin that returned true needs its end. End
 * returns false when the writer is to go on only after ecfs_staged_pause ().
 */
bool ecfs_staged_change_begin (EcfsStaged *self, uint64_t offset, uint64_t size, GError **error);
bool ecfs_staged_change_end (EcfsStaged *self, uint64_t n_new_bytes, uint64_t size, int64_t mtime_ns);
/**
 * Calls done, without an error, when staging has room again, or nothing is stored for close_timeout: then further
 * changes fail; and when an attempt that somebody insists on, and that this change has overtaken, is through.
 */
void ecfs_staged_pause (EcfsStaged *self, EcfsStagedDone done, void *user);
/** The pause that was begun with @user ends soon, from another thread; nothing happens when it has ended. */
void ecfs_staged_unpause (EcfsStaged *self, const void *user);
/** ftruncate(2), with begin and end. */
bool ecfs_staged_truncate (EcfsStaged *self, uint64_t size, int64_t mtime_ns, GError **error);

/** utimens. True: the content was flushed, so the time is the catalog's, which has to be told as well. */
bool ecfs_staged_set_mtime (EcfsStaged *self, int64_t mtime_ns);

/** How often a file was not changed in place since it is above rewrite_max, since the mount began. */
unsigned ecfs_staged_n_too_large (EcfsArchive *archive);

/* A file that something is done with at this moment. */
typedef struct EcfsStagedFacts {
    uint64_t ino;
    const char *doing; /* a word; static */
    uint64_t size;     /* bytes */
    int64_t took_us;   /* so far; 0: not known */
} EcfsStagedFacts;

/** Up to @most of these; returns how many. Cheap. Any thread. */
size_t ecfs_staged_under_way (EcfsArchive *archive, EcfsStagedFacts *ret_facts, size_t most);

/** How many files have left staging until now: to be asked before attributes are read from the catalog. */
unsigned ecfs_staged_epoch (EcfsArchive *archive);
/**
 * For attributes that were read from the catalog after @moment: what staged content changes in them; where it was
 * committed and left staging meanwhile they are read again. Cheap when nothing is staged.
 */
void ecfs_staged_overlay (EcfsArchive *archive, unsigned moment, EcfsAttr *attr);

/** close(2) of one descriptor: commits now, or makes durable what the last release commits; see decision 4. */
void ecfs_staged_flush (EcfsStaged *self, EcfsStagedDone done, void *user);
/** The flush that was begun with @user shall be answered as soon as staging is durable; the commit continues in the
 * background. */
void ecfs_staged_hurry (EcfsStaged *self, const void *user);
/**
 * fsync(2): staging and namespace durable on this machine; with fsync = remote the content of now committed, which may
 * be hurried like a flush. Content without its size and name would not survive, so fdatasync(2) is the same.
 */
void ecfs_staged_fsync (EcfsStaged *self, EcfsStagedDone done, void *user);
/**
 * To be called before rename(2) of a file that is about to take the place of another. What was closed of it is
 * committed first, if it can be within close_timeout and commit = sync; what was not flushed is made durable on this
 * machine. Otherwise a crash, or the loss of the machine, would leave neither the old content nor the new.
 */
void ecfs_staged_before_rename (EcfsArchive *archive, uint64_t parent, const char *name, uint64_t new_parent,
                                const char *new_name, EcfsStagedDone done, void *user);
/** One writer less; gives back the reference of new or open. */
void ecfs_staged_release (EcfsStaged *self);

/** The inode lost its last name: nothing is committed any more; those who have it open continue. */
void ecfs_staged_unlinked (EcfsArchive *archive, uint64_t ino);
/** Nobody can reach the inode any more and it is dropped from the catalog: so is what is staged. */
void ecfs_staged_drop (EcfsArchive *archive, uint64_t ino);

/**
 * Of a shared catalog: removes rows of files that are not staged any more and were among @suspects (a set of row ids,
 * borrowed), as a row that could not be removed in its time keeps other mounts from the file. Those that are seen for
 * the first time are in it then. Call it every few seconds, by one thread.
 */
bool ecfs_staged_sweep (EcfsArchive *archive, GHashTable *suspects, GError **error);

/** Whether content is staged that is not committed yet. */
bool ecfs_staged_is_newer (EcfsArchive *archive, uint64_t ino);

/** Whether the only content of a new file is being written, and nothing of it was flushed. */
bool ecfs_staged_is_unflushed (EcfsArchive *archive, uint64_t ino);

/**
 * Calls done when everything that is flushed now is committed with its quorum, or in full with @full. @ino 0: all
 * files. Retries are brought forward. When attempts fail after this call, the error has a line for each of the first
 * ten files, which names file and endpoints (they are retried all the same). What somebody writes and has not flushed
 * is not waited for.
 */
void ecfs_staged_wait (EcfsArchive *archive, uint64_t ino, bool full, EcfsStagedDone done, void *user);

#endif
