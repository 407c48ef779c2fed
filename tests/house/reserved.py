"""Words that a column or table may not be called, by who reserves them."""

from __future__ import annotations

# Every keyword of SQLite: some are tolerated as names, but its manual advises against all of them.
SQLITE = frozenset(
    """
    abort action add after all alter always analyze and as asc attach autoincrement before begin between by cascade
    case cast check collate column commit conflict constraint create cross current current_date current_time
    current_timestamp database default deferrable deferred delete desc detach distinct do drop each else end escape
    except exclude exclusive exists explain fail filter first following for foreign from full generated glob group
    groups having if ignore immediate in index indexed initially inner insert instead intersect into is isnull join
    key last left like limit match materialized natural no not nothing notnull null nulls of offset on or order
    others outer over partition plan pragma preceding primary query raise range recursive references regexp reindex
    release rename replace restrict returning right rollback row rows savepoint select set table temp temporary then
    ties to transaction trigger unbounded union unique update using vacuum values view virtual when where window
    with without
    """.split()
)

# Reserved, or reserved but allowed as function or type (pg_get_keywords, categories R and T).
POSTGRESQL = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
    column concurrently constraint create cross current_catalog current_date current_role current_schema
    current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for
    foreign freeze from full grant group having ilike in initially inner intersect into is isnull join lateral
    leading left like limit localtime localtimestamp natural not notnull null offset on only or order outer overlaps
    placing primary references returning right select session_user similar some symmetric table tablesample then to
    trailing true union unique user using variadic verbose when where window with
    """.split()
)

# Reserved by MySQL 8 or by MariaDB 10 and later.
MYSQL = frozenset(
    """
    accessible add admin all alter analyze and array as asc asensitive before between bigint binary blob body both
    by call cascade case change char character check collate column condition constraint continue convert create
    cross cube cume_dist current_date current_role current_time current_timestamp current_user cursor database
    databases day_hour day_microsecond day_minute day_second dec decimal declare default delayed delete dense_rank
    desc describe deterministic distinct distinctrow div do_domain_ids double drop dual each else elseif elsif empty
    enclosed escaped except exists exit explain false fetch first_value float float4 float8 for force foreign from
    fulltext function general generated get get_master_public_key goto grant group grouping groups having
    high_priority history hour_microsecond hour_minute hour_second if ignore ignore_domain_ids ignore_server_ids in
    index infile inner inout insensitive insert int int1 int2 int3 int4 int8 integer intersect interval into
    io_after_gtids io_before_gtids is iterate join json_table key keys kill lag last_value lateral lead leading
    leave left like limit linear lines load localtime localtimestamp lock long longblob longtext loop low_priority
    master_bind master_heartbeat_period master_ssl_verify_server_cert match maxvalue mediumblob mediumint mediumtext
    member middleint minute_microsecond minute_second mod modifies natural no_write_to_binlog not nth_value ntile
    null numeric of offset on optimize optimizer_costs option optionally or order others out outer outfile over
    package page_checksum parallel parse_gcol_expr parse_vcol_expr partition percent_rank period persist
    persist_only position precision primary procedure purge qualify raise range rank read read_write reads real
    recursive ref_system_id references regexp release rename repeat replace require resignal restrict return
    returning revoke right rlike role row row_number rows rowtype schema schemas second_microsecond select sensitive
    separator set show signal slow smallint spatial specific sql sql_after_gtids sql_before_gtids sql_big_result
    sql_calc_found_rows sql_small_result sqlexception sqlstate sqlwarning ssl starting stats_auto_recalc
    stats_persistent stats_sample_pages stored straight_join system system_time table terminated then tinyblob
    tinyint tinytext to trailing trigger true undo union unique unlock unsigned update usage use using utc_date
    utc_time utc_timestamp values varbinary varchar varcharacter varying versioning virtual when where while window
    with without write xor year_month zerofill
    """.split()
)

# Reserved by SQL:2016.
STANDARD = frozenset(
    """
    abs acos all allocate alter and any are array array_agg array_max_cardinality as asensitive asin asymmetric at
    atan atomic authorization avg begin begin_frame begin_partition between bigint binary blob boolean both by call
    called cardinality cascaded case cast ceil ceiling char char_length character character_length check classifier
    clob close coalesce collate collect column commit condition connect constraint contains convert copy corr
    corresponding cos cosh count covar_pop covar_samp create cross cube cume_dist current current_catalog
    current_date current_default_transform_group current_path current_role current_row current_schema current_time
    current_timestamp current_transform_group_for_type current_user cursor cycle date day deallocate dec decfloat
    decimal declare default define delete dense_rank deref describe deterministic disconnect distinct double drop
    dynamic each element else empty end end_frame end_partition equals escape every except exec execute exists exp
    external extract false fetch filter first_value float floor for foreign frame_row free from full function fusion
    get global grant group grouping groups having hold hour identity in indicator initial inner inout insensitive
    insert int integer intersect intersection interval into is join json_array json_arrayagg json_exists json_object
    json_objectagg json_query json_table json_table_primitive json_value lag language large last_value lateral lead
    leading left like like_regex listagg ln local localtime localtimestamp log log10 lower match match_number
    match_recognize matches max member merge method min minute mod modifies module month multiset national natural
    nchar nclob new no none normalize not nth_value ntile null nullif numeric occurrences_regex octet_length of
    offset old omit on one only open or order out outer over overlaps overlay parameter partition pattern per
    percent percent_rank percentile_cont percentile_disc period permute portion position position_regex power
    precedes precision prepare primary procedure ptf range rank reads real recursive ref references referencing
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy release result
    return returns revoke right rollback rollup row row_number rows running savepoint scope scroll search second
    seek select sensitive session_user set show similar sin sinh skip smallint some specific specifictype sql
    sqlexception sqlstate sqlwarning sqrt start static stddev_pop stddev_samp submultiset subset substring
    substring_regex succeeds sum symmetric system system_time system_user table tablesample tan tanh then time
    timestamp timezone_hour timezone_minute to trailing translate translate_regex translation treat trigger trim
    trim_array true truncate uescape union unique unknown unnest update upper user using value value_of values
    var_pop var_samp varbinary varchar varying versioning when whenever where width_bucket window with within
    without year
    """.split()
)

STORES = {"SQLite": SQLITE, "PostgreSQL": POSTGRESQL, "MySQL or MariaDB": MYSQL}
