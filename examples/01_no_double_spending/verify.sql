select (select count(*) from produced) as produced,
       (select count(distinct number) from spent) as spent,
       (select count(*) from (select number from spent group by number having count(*) > 1) as twice) as doubled,
       (select count(*) from produced where number not in (select number from spent)) as lost,
       (select max(attempt) from spent) as highest_attempt;
