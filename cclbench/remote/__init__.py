# SPDX-License-Identifier: Apache-2.0
"""What lies behind a URL: object stores and web servers, read and written so that all else sees local files.

`url` says what is a URL and how it is shown, `objects` lists, reads and writes what lies below one,
`failures` says what went wrong there, `web` is the downloader for http and https, `spool` brings a SOURCE
here for as long as it is read.
"""
