# SPDX-License-Identifier: Apache-2.0
"""Object stores and web servers, read and written so that everything else sees local files.

`url` parses and prints URLs, `objects` lists, downloads and uploads objects, `failures` classifies errors,
`web` is the downloader for http and https, `spool` downloads a SOURCE for as long as it is read.
"""
