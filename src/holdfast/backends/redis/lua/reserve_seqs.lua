-- Takes ARGV[3] seqs, for jobs that are to be linked before they are inserted.
return call('INCRBY', P .. 'seq', ARGV[3])
