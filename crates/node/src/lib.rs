//! a storage node: open versions, the RESP server, cold reads, fetches
