/* Programs of ours that another one runs in a process of its own. */
#ifndef ECFS_UTIL_HELPER_H
#define ECFS_UTIL_HELPER_H

/** Where @program is: what the environment's @variable says, else beside the program that runs, as in a build
 * directory, else where it was installed, whether it is there or not. g_free () */
char *ecfs_helper_path (const char *program, const char *variable);

#endif
