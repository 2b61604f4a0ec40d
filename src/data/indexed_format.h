/* Where things stand in the header of an .idx; data/indexed.h draws it. For its reader and its writer. */
#ifndef BK_DATA_INDEXED_FORMAT_H
#define BK_DATA_INDEXED_FORMAT_H

#define BK_INDEXED_MAGIC "MMIDIDX\0" /* and the literal's own zero */

enum {
    BK_INDEXED_MAGIC_BYTES = 9,
    BK_INDEXED_AT_VERSION = 9,
    BK_INDEXED_AT_DTYPE = 17,
    BK_INDEXED_AT_SEQUENCES = 18,
    BK_INDEXED_AT_ENTRIES = 26,
    BK_INDEXED_HEADER = 34,
};

#endif
